/** The bill of materials: what `package-lock.json` pins, as CycloneDX has it. */

export interface LockedPackage {
  version: string;
  license?: string;
  integrity?: string;
  dev?: boolean;
  optional?: boolean;
  link?: boolean;
  hasInstallScript?: boolean;
}

export interface Lock {
  version: string;
  packages: Record<string, LockedPackage>;
}

interface Component extends LockedPackage {
  name: string;
}

const FOLDER = "node_modules/";

/** Licences that the service may be shipped with; those of tools for development may be others. */
const SHIPPED_LICENCES: ReadonlySet<string> = new Set([
  "MIT",
  "ISC",
  "0BSD",
  "BSD-2-Clause",
  "BSD-3-Clause",
  "Apache-2.0",
]);

/** Packages from elsewhere, each version once. */
export function componentsOf({ packages }: Lock): Component[] {
  const found = new Map<string, Component>();
  for (const [path, locked] of Object.entries(packages)) {
    if (locked.link || !path.includes(FOLDER)) continue;
    const name = path.slice(path.lastIndexOf(FOLDER) + FOLDER.length);
    const known = found.get(`${name}@${locked.version}`);
    // Shipped if it is shipped anywhere.
    if (!known || known.dev) found.set(`${name}@${locked.version}`, { name, ...locked });
  }
  return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

/** What is wrong with what is pinned. */
export function problemsOf(components: readonly Component[]): string[] {
  return components.flatMap(({ name, version, license, integrity, dev, hasInstallScript }) => {
    const what = `${name}@${version}`;
    const problems: string[] = [];
    if (!integrity?.startsWith("sha512-")) problems.push(`${what} has no SHA-512 in package-lock.json`);
    if (!license) problems.push(`${what} names no licence`);
    else if (!dev && !SHIPPED_LICENCES.has(license)) problems.push(`${what} is shipped under ${license}`);
    // What a development package would run is denied by name in package.json.
    if (hasInstallScript && !dev && name !== "bun")
      problems.push(`${what} runs a script when it is installed`);
    return problems;
  });
}

const purlOf = ({ name, version }: Component): string =>
  `pkg:npm/${name.replace("@", "%40")}@${encodeURIComponent(version)}`;

export const cycloneDx = (lock: Lock) => ({
  bomFormat: "CycloneDX",
  specVersion: "1.6",
  version: 1,
  metadata: { component: { type: "application", name: "model-gateway", version: lock.version } },
  components: componentsOf(lock).map((component) => ({
    type: "library",
    "bom-ref": purlOf(component),
    purl: purlOf(component),
    name: component.name,
    version: component.version,
    scope: component.dev ? "excluded" : component.optional ? "optional" : "required",
    licenses: component.license ? [{ expression: component.license }] : [],
    hashes: (component.integrity ?? "")
      .split(" ")
      .filter((hash) => hash.startsWith("sha512-"))
      .map((hash) => ({ alg: "SHA-512", content: Buffer.from(hash.slice(7), "base64").toString("hex") })),
  })),
});

/** A line for each licence, with what is under it. */
export function licenceTable(components: readonly Component[]): string {
  const byLicence = Map.groupBy(
    components,
    ({ license, dev }) => `${dev ? "development" : "shipped"}, ${license ?? "none"}`,
  );
  return [...byLicence]
    .sort(([a], [b]) => (a < b ? 1 : -1))
    .map(
      ([licence, list]) =>
        `${licence}: ${list.map(({ name, version }) => `${name} ${version}`).join(", ")}\n`,
    )
    .join("");
}
