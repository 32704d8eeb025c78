// Numbers as people read them.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** `1,204` */
export function count(number: number): string {
  return whole.format(number);
}

/** `1 letter`, `1,204 letters` */
export function counted(number: number, one: string, many = `${one}s`): string {
  return `${whole.format(number)} ${number === 1 ? one : many}`;
}

/** `512 B`, `15 MiB` */
export function bytes(number: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let size = number;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${short.format(size)} ${units[unit]}`;
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** `98,204`, then `1.2M`: for places that are narrow. */
export function shortly(number: number): string {
  return number < 100_000 ? whole.format(number) : compact.format(number);
}
