// Bytes for eyes: sixteen a line, where they stand, and those that are ASCII.

const MOST = 16 * 1024;

export function hexDump(base64: string): string {
  const data = atob(base64.slice(0, Math.ceil(MOST / 3) * 4));
  const lines: string[] = [];
  for (let start = 0; start < data.length; start += 16) {
    const row = data.slice(start, start + 16);
    const codes = Array.from(row, (byte) => byte.charCodeAt(0).toString(16).padStart(2, "0"));
    const seen = row.replace(/[^\x20-\x7e]/g, ".");
    const [left, right] = [codes.slice(0, 8).join(" "), codes.slice(8).join(" ")];
    lines.push(`${start.toString(16).padStart(8, "0")}  ${left.padEnd(23)}  ${right.padEnd(23)}  |${seen}|`);
  }
  return lines.join("\n");
}
