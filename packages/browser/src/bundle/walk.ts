import { realpathSync } from "node:fs";
import type { BinaryInfo } from "./binary.ts";
import { invalidBinary } from "./byte-source.ts";

/** The largest browsers load about 200 libraries; beyond this the files must refer to each other in a cycle. */
const OBJECTS_MAX = 10_000;

export interface LoadedObject {
  info: BinaryInfo;
  /** Where it was opened, inside the scanned system (without the sysroot prefix). */
  path: string;
  /** The object on whose behalf it was loaded; null for the program itself. */
  loader: LoadedObject | null;
  /** Every name under which the loader now knows it. */
  names: Set<string>;
}

export interface Found {
  /** Null for what the system provides without a file, such as Windows API sets. */
  path: string | null;
  /** Which rule of the loader found it. */
  via: string;
  info: BinaryInfo | null;
}

export interface Dependency {
  name: string;
  path: string | null;
  via: string | null;
  neededBy: string;
  /** The loader goes on when it is missing. */
  optional: boolean;
  missing: boolean;
  bytes: number;
}

export interface LoaderOptions {
  env: Record<string, string | undefined>;
  /** Scan a system that lies in this directory, such as an unpacked image. */
  sysroot: string;
  /** Searched like LD_LIBRARY_PATH, before it: where bundled libraries will be put. */
  extraDirectories: string[];
}

export interface LoaderRules {
  find(name: string, requester: LoadedObject): Found | null;
  /** What the requester's name is compared by; DLL names ignore case. */
  key(name: string): string;
}

interface WalkOptions {
  root: LoadedObject;
  rules: LoaderRules;
  /** Objects that are in the process before anything is asked for: preloads and the loader itself. */
  preloaded?: { name: string; found: Found | null }[];
  realPath(path: string): string;
  bytes(path: string): number;
}

/** Breadth first, in the order of the needed entries, each library once: the order in which loaders work. */
export function walkDependencies({
  root,
  rules,
  preloaded = [],
  realPath,
  bytes,
}: WalkOptions): Dependency[] {
  const known = new Map<string, LoadedObject>();
  const byFile = new Map<string, LoadedObject>();
  const dependencies: Dependency[] = [];
  const queue: LoadedObject[] = [];
  const missing = new Set<string>();
  /** What the system has without a file. */
  const provided = new Set<string>();

  const add = (object: LoadedObject) => {
    for (const name of object.names) if (!known.has(rules.key(name))) known.set(rules.key(name), object);
    byFile.set(realPath(object.path), object);
    queue.push(object);
    if (queue.length > OBJECTS_MAX)
      throw invalidBinary(root.path, `it leads to more than ${OBJECTS_MAX} libraries`);
  };
  const record = (name: string, found: Found | null, requester: LoadedObject, optional: boolean) => {
    dependencies.push({
      name,
      path: found?.path ?? null,
      via: found?.via ?? null,
      neededBy: requester.path,
      optional,
      missing: found === null,
      bytes: found?.path ? bytes(found.path) : 0,
    });
  };
  const load = (name: string, found: Found | null, requester: LoadedObject, optional: boolean) => {
    const sameFile = found?.path ? byFile.get(realPath(found.path)) : undefined;
    if (sameFile) {
      sameFile.names.add(name);
      known.set(rules.key(name), sameFile);
      return;
    }
    record(name, found, requester, optional);
    if (!found?.path || !found.info) return;
    const names = new Set([name, found.path]);
    if (found.info.soname) names.add(found.info.soname);
    add({ info: found.info, path: found.path, loader: requester, names });
  };

  add(root);
  for (const { name, found } of preloaded) load(name, found, root, false);
  for (let index = 0; index < queue.length; index++) {
    const requester = queue[index]!;
    for (const { name, optional } of requester.info.needed) {
      const key = rules.key(name);
      if (known.has(key) || provided.has(key)) continue;
      // What one object could not find may be in another one's search path, so it is looked for again.
      const found = rules.find(name, requester);
      if (found === null && missing.has(key)) continue;
      if (found === null) missing.add(key);
      else if (found.path === null) provided.add(key);
      load(name, found, requester, optional);
    }
  }
  return dependencies;
}

export function realPathOrSelf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
