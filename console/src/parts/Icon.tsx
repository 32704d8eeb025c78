// The console's own icons: 20 by 20, one stroke.
const PATHS = {
  letters: "M3 5.5h14v9.5H3zM3.4 6l6.6 5 6.6-5",
  groups: "M10 3 17 6.5 10 10 3 6.5zM3.5 10 10 13.3 16.5 10M3.5 13.4 10 16.7l6.5-3.3",
  replays: "M4 10a6 6 0 0 1 10.4-4.1L16 7.5M16 3.8v3.7h-3.7M16 10a6 6 0 0 1-10.4 4.1L4 12.5M4 16.2v-3.7h3.7",
  policies: "M4 5.5h7M15 5.5h1M4 10h2M10 10h6M4 14.5h8M16 14.5h0M13 3.8v3.4M8 8.3v3.4M14 12.8v3.4",
  topology: "M3.5 8h4v4h-4zM12.5 3.5h4v4h-4zM12.5 12.5h4v4h-4zM7.5 10h2.5M10 5.5v9M10 5.5h2.5M10 14.5h2.5",
  overview: "M3.5 16.5v-5M8 16.5V8M12 16.5v-4M16.5 16.5V4",
  audit: "M5 3.5h7l3 3v10H5zM12 3.5v3h3M7.5 10h5M7.5 13h5",
  search: "M9 3.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 0 1 9 3.8zM13 13l3.6 3.6",
  close: "M5 5l10 10M15 5 5 15",
  check: "M4 10.5 8.2 14.5 16 6",
  copy: "M7 7h9v9H7zM4 13V4h9",
  sun: "M10 7a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM10 2.5v1.8M10 15.7v1.8M2.5 10h1.8M15.7 10h1.8M4.7 4.7 6 6M14 14l1.3 1.3M15.3 4.7 14 6M6 14l-1.3 1.3",
  moon: "M16 11.8A6.6 6.6 0 0 1 8.2 4 6.6 6.6 0 1 0 16 11.8z",
  screen: "M3 4.5h14v9H3zM7 16.5h6M10 13.5v3",
  menu: "M3.5 6h13M3.5 10h13M3.5 14h13",
  previous: "M12 4.5 6.5 10l5.5 5.5",
  next: "M8 4.5 13.5 10 8 15.5",
  down: "M5 7.5 10 12.5 15 7.5",
  send: "M3.5 10h11M10.5 5.5 15 10l-4.5 4.5",
  edit: "M4 16l.7-3.2L13.5 4 16 6.5l-8.8 8.8zM11.8 5.7l2.5 2.5",
  discard: "M4.5 6h11M8 6V4h4v2M6 6l.7 10.5h6.6L14 6M8.7 9v4.7M11.3 9v4.7",
  archive: "M3.5 4.5h13v3h-13zM4.7 7.5v8.5h10.6V7.5M8 10.5h4",
  restore: "M4 8h7.5a4.2 4.2 0 0 1 0 8.4H7M4 8l3.2-3.2M4 8l3.2 3.2",
  download: "M10 3.5v9M6.3 9 10 12.7 13.7 9M4 16.5h12",
  warning: "M10 3.3 17.5 16.5h-15zM10 8.2v4M10 14.3v.2",
  clock: "M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM10 6v4.2l2.8 1.7",
  keyboard: "M2.5 5.5h15v9h-15zM5.5 8.5h0M8.5 8.5h0M11.5 8.5h0M14.5 8.5h0M7 11.7h6",
  user: "M10 3.5a3.2 3.2 0 1 1 0 6.4 3.2 3.2 0 0 1 0-6.4zM3.8 16.5c.6-3 3-4.5 6.2-4.5s5.6 1.5 6.2 4.5",
  leave: "M8 4H4v12h4M8.5 10h8M13.5 7l3 3-3 3",
  filter: "M3.5 5.5h13M6 10h8M8.5 14.5h3",
  more: "M5 10h0M10 10h0M15 10h0",
  plus: "M10 4.5v11M4.5 10h11",
  pause: "M7 5v10M13 5v10",
  play: "M6.5 4.5v11L15.5 10z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 20 20"
      fill="none"
      stroke="currentColor"
      strokeWidth={name === "more" ? 2.4 : 1.6}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
