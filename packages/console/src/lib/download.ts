/**
 * Spreadsheets run a cell that begins with one of these as a formula. In countries that write 1,5 they split lines at
 * semicolons, inside quotes too, so a cell may begin anywhere.
 */
const FORMULA = /(^|[;\t\r\n])(\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])/g;

function csvCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" ? value.replace(FORMULA, "$1$2'") : String(value);
  return /[",;\t\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toCsv(columns: readonly string[], rows: readonly Record<string, unknown>[]): string {
  const lines = rows.map((row) => columns.map((column) => csvCell(row[column])).join(","));
  return `${[columns.join(","), ...lines].join("\r\n")}\r\n`;
}

export function downloadText(name: string, text: string, type = "text/csv"): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  URL.revokeObjectURL(url);
}
