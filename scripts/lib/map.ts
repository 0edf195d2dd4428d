/** The map of the folders in docs/ARCHITECTURE.md: an indented list, each line one or more names and what they are. */
const LINE = /^( *)((?:[\w./-]+(?:\.tsx?|\/) )*[\w./-]+(?:\.tsx?|\/))(?: {2,}(.*))?$/;
const INDENT = 2;
/** What a line says when its folders are too many, or too often new, to be listed. */
const UNLISTED = /one (folder|file) (per|for each) /;

export interface FolderMap {
  /** Every folder and file that is listed, by its path; folders end in a slash. */
  listed: ReadonlySet<string>;
  /** Folders whose contents the map leaves out on purpose. */
  unlisted: ReadonlySet<string>;
}

export function readMap(markdown: string): FolderMap {
  const block = /```\n([\s\S]*?)```/.exec(markdown)?.[1] ?? "";
  const listed = new Set<string>();
  const unlisted = new Set<string>();
  const parents: string[] = [];
  for (const line of block.split("\n").filter(Boolean)) {
    const [, indent, names, text = ""] = LINE.exec(line) ?? [];
    if (indent === undefined || names === undefined)
      throw new Error(`this line of the map names no folder or file: ${line}`);
    const depth = indent.length / INDENT;
    const parent = depth === 0 ? "" : parents[depth - 1];
    if (parent === undefined) throw new Error(`this line of the map stands below nothing: ${line}`);
    for (const name of names.split(" ")) {
      listed.add(parent + name);
      if (UNLISTED.test(text)) unlisted.add(parent + name);
      parents.length = depth;
      parents[depth] = parent + name;
    }
  }
  return { listed, unlisted };
}

/** Folders that a newcomer must find on the map: those of each package, and in the gateway those below them too. */
const isDue = (folder: string) =>
  /^(packages\/[^/]+\/(src\/([^/]+\/)?)?|packages\/gateway\/src\/[^/]+\/[^/]+\/|(tests|bench)\/[^/]+\/)$/.test(
    folder,
  );

/** A package whose only folder is src needs no line for it. */
const shown = (folder: string) => folder.replace(/\/src\/$/, "/");

/** `exists` holds every folder (with a slash at its end) and file of the repository. */
export function mapProblems(markdown: string, exists: ReadonlySet<string>): string[] {
  const { listed, unlisted } = readMap(markdown);
  // The map writes `packages/wire/server/` or `packages/gateway/src/rooms/`; both are the same tree.
  const plain = (path: string) => path.replace(/^(packages\/[^/]+\/)src\//, "$1");
  const known = new Set([...listed].map(plain));
  const open = new Set([...unlisted].map(plain));
  const real = new Set([...exists].map(plain));
  const isLeftOut = (folder: string) =>
    [...open].some((parent) => folder !== parent && folder.startsWith(parent));
  return [
    ...[...exists]
      .filter((path) => path.endsWith("/") && isDue(path))
      .map((folder) => plain(shown(folder)))
      .filter((folder) => !known.has(folder) && !isLeftOut(folder))
      .map((folder) => `${folder} is not on the map`),
    ...[...known].filter((path) => !real.has(path)).map((path) => `${path} is on the map and not there`),
  ];
}
