import { statSync } from "node:fs";
import { join, resolve } from "node:path";
import { type BinaryFormat, readBinary } from "./binary.ts";
import { ElfLoader } from "./elf-loader.ts";
import { MachOLoader, PeLoader } from "./other-loaders.ts";
import { type Dependency, type LoadedObject, realPathOrSelf, walkDependencies } from "./walk.ts";

export interface ScanOptions {
  /** The process's own when not given, unless another system is scanned. */
  env?: Record<string, string | undefined>;
  /** Scan a system that lies in this directory; paths are then paths inside it. */
  sysroot?: string;
  /** Directories that will be in front of the library search at run time. */
  extraDirectories?: string[];
}

export interface DependencyScan {
  path: string;
  format: BinaryFormat;
  machine: string;
  bits: 32 | 64;
  /** False for a statically linked program. */
  dynamic: boolean;
  /** In loading order; what is not there is in the list with `missing`. */
  dependencies: Dependency[];
  /** The required ones that no rule found. */
  missing: string[];
}

/** Which libraries the system's loader would load for a binary, found by reading files, without running it. */
export function scanDependencies(path: string, options: ScanOptions = {}): DependencyScan {
  const sysroot = options.sysroot ?? "";
  const inside = (file: string) => (sysroot ? join(sysroot, file) : file);
  // The kernel gives the loader the program's real path, so $ORIGIN is not the directory of a symlink to it.
  const realPath = sysroot ? path : realPathOrSelf(resolve(path));
  const info = readBinary(inside(realPath));
  const root: LoadedObject = { info, path: realPath, loader: null, names: new Set([realPath]) };
  if (info.soname) root.names.add(info.soname);
  const env = options.env ?? (sysroot ? {} : process.env);
  const loaderOptions = { env, sysroot, extraDirectories: options.extraDirectories ?? [] };
  const elf = info.format === "elf" ? new ElfLoader(root, loaderOptions) : null;
  const rules =
    elf ??
    (info.format === "macho" ? new MachOLoader(root, loaderOptions) : new PeLoader(root, loaderOptions));
  const dependencies = walkDependencies({
    root,
    rules,
    preloaded: elf?.preloaded() ?? [],
    realPath: (file) => realPathOrSelf(inside(file)),
    bytes: (file) => statSync(inside(file)).size,
  });
  return {
    path: realPath,
    format: info.format,
    machine: info.machine,
    bits: info.bits,
    dynamic: info.dynamic,
    dependencies,
    missing: dependencies.filter(({ missing, optional }) => missing && !optional).map(({ name }) => name),
  };
}
