import type { BundleReport } from "./report.ts";
import type { DependencyScan } from "./scan.ts";

const UNITS = ["B", "KiB", "MiB", "GiB"];

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`;
}

export function renderScan(scan: DependencyScan): string {
  const lines = [`${scan.path}: ${scan.format} ${scan.machine} ${scan.bits}-bit`];
  if (!scan.dynamic) return [...lines, "  statically linked"].join("\n");
  for (const { name, path, via, missing, optional, neededBy } of scan.dependencies) {
    if (!missing) lines.push(`  ${name} => ${path ?? via} (${via})`);
    else lines.push(`  ${name} => not found${optional ? " (optional)" : ""}, needed by ${neededBy}`);
  }
  lines.push(`${scan.dependencies.length} libraries, ${scan.missing.length} missing`);
  return lines.join("\n");
}

export function renderBundleReport(report: BundleReport): string {
  const lines = [`Libraries to ship for ${report.targetOs}:`];
  if (report.libraries.length === 0)
    lines.push("  none (BROWSER_BUNDLE_LIBS and BROWSER_BUNDLE_MANIFEST are not set)");
  for (const { status, name, path, bytes, optional, reason } of report.libraries) {
    const size = bytes > 0 ? `  ${formatBytes(bytes)}` : "";
    const note = reason ? `  (${reason}${optional ? ", optional" : ""})` : "";
    lines.push(`  ${status.padEnd(8)} ${name}  ${path}${size}${note}`);
  }
  const shown = report.dependencies.filter(({ status }) => status !== "system");
  const system = report.dependencies.length - shown.length;
  lines.push(`Dependencies: ${report.dependencies.length}, of which ${system} come from the system`);
  for (const { status, name, neededBy } of shown)
    lines.push(`  ${status.padEnd(8)} ${name}  needed by ${neededBy}`);
  const { found, missing, bundled, bytes } = report.totals;
  lines.push(`${found} found, ${missing} missing, ${bundled} bundled, ${formatBytes(bytes)}`);
  return lines.join("\n");
}
