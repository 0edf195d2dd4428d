import { existsSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { type BinaryInfo, readBinary } from "./binary.ts";
import { splitPathList } from "./elf.ts";
import { readLoaderCache } from "./ld-cache.ts";
import type { Found, LoadedObject, LoaderOptions, LoaderRules } from "./walk.ts";

interface Platform {
  triplet: string;
  loader: string;
  /** What $PLATFORM stands for. */
  platform: string;
}

const platforms: Record<string, Platform> = {
  x86_64: { triplet: "x86_64-linux-gnu", loader: "/lib64/ld-linux-x86-64.so.2", platform: "x86_64" },
  aarch64: { triplet: "aarch64-linux-gnu", loader: "/lib/ld-linux-aarch64.so.1", platform: "aarch64" },
  i386: { triplet: "i386-linux-gnu", loader: "/lib/ld-linux.so.2", platform: "i686" },
  arm: { triplet: "arm-linux-gnueabihf", loader: "/lib/ld-linux-armhf.so.3", platform: "v7l" },
  ppc64: { triplet: "powerpc64le-linux-gnu", loader: "/lib64/ld64.so.2", platform: "power8" },
  s390x: { triplet: "s390x-linux-gnu", loader: "/lib/ld64.so.1", platform: "z900" },
  riscv: { triplet: "riscv64-linux-gnu", loader: "/lib/ld-linux-riscv64-lp64d.so.1", platform: "riscv64" },
};

/** glibc's search, as the manual page ld.so(8) and its source describe it. */
export class ElfLoader implements LoaderRules {
  private readonly cache: Map<string, string[]> | null;
  private readonly defaultDirectories: string[];
  private readonly lib: string;
  private readonly platform: string;
  private readonly loaderPath: string;
  private readonly parsed = new Map<string, BinaryInfo | null>();

  constructor(
    private readonly main: LoadedObject,
    private readonly options: LoaderOptions,
  ) {
    const { machine, bits, interpreter } = main.info;
    const known = platforms[machine];
    const triplet = known?.triplet ?? "";
    this.platform = known?.platform ?? machine;
    this.loaderPath = interpreter ?? known?.loader ?? "";
    this.cache = readLoaderCache(this.inside("/etc/ld.so.cache"));
    const multiarch = ["/lib", "/usr/lib"].map((base) => join(base, triplet));
    if (triplet && multiarch.some((path) => existsSync(this.inside(path)))) {
      this.lib = `lib/${triplet}`;
      this.defaultDirectories = [...multiarch, "/lib", "/usr/lib"];
    } else {
      this.lib = bits === 64 && existsSync(this.inside("/lib64")) ? "lib64" : "lib";
      const wide = bits === 64 ? ["/lib64", "/usr/lib64"] : [];
      this.defaultDirectories = [...wide, "/lib", "/usr/lib"];
    }
  }

  key(name: string): string {
    return name;
  }

  private inside(path: string): string {
    return `${this.options.sysroot}${path}`;
  }

  /** The file if it is a library for this machine; the loader passes over any other. */
  open(path: string): BinaryInfo | null {
    const known = this.parsed.get(path);
    if (known !== undefined) return known;
    let info: BinaryInfo | null = null;
    try {
      if (statSync(this.inside(path)).isFile()) info = readBinary(this.inside(path));
    } catch {
      info = null;
    }
    const { machine, bits, littleEndian } = this.main.info;
    const fits =
      info?.format === "elf" &&
      info.machine === machine &&
      info.bits === bits &&
      info.littleEndian === littleEndian;
    const result = fits ? info : null;
    this.parsed.set(path, result);
    return result;
  }

  private expand(path: string, object: LoadedObject): string {
    return path.replace(
      /\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))/g,
      (_, a, b) => {
        const token = a ?? b;
        if (token === "ORIGIN") return dirname(object.path);
        return token === "LIB" ? this.lib : this.platform;
      },
    );
  }

  private searchIn(directories: string[], name: string, via: string): Found | null {
    for (const directory of directories) {
      // Plain concatenation: a `..` behind a symlink must be left for the file system to follow.
      const base = directory.endsWith("/") ? directory : `${directory}/`;
      const path = `${base}${name}`;
      const info = this.open(path);
      if (info) return { path, via, info };
    }
    return null;
  }

  /** RPATH counts only where there is no RUNPATH, and is inherited along the chain of loaders. */
  private searchRpath(name: string, requester: LoadedObject): Found | null {
    if (requester.info.runpath.length > 0) return null;
    const chain: LoadedObject[] = [];
    for (let object: LoadedObject | null = requester; object; object = object.loader) chain.push(object);
    if (!chain.includes(this.main)) chain.push(this.main);
    for (const object of chain) {
      if (object.info.runpath.length > 0) continue;
      const directories = object.info.rpath.map((path) => this.expand(path, object));
      const found = this.searchIn(directories, name, "rpath");
      if (found) return found;
    }
    return null;
  }

  private searchCache(name: string, requester: LoadedObject): Found | null {
    for (const path of this.cache?.get(name) ?? []) {
      const inDefault = this.defaultDirectories.some((directory) => path.startsWith(`${directory}/`));
      if (requester.info.noDefaultDirectories && inDefault) continue;
      const info = this.open(path);
      if (info) return { path, via: "ld.so.cache", info };
    }
    return null;
  }

  find(name: string, requester: LoadedObject): Found | null {
    if (name.includes("/")) {
      const path = this.expand(name, requester);
      const info = this.open(path);
      return info ? { path, via: "path", info } : null;
    }
    // The running loader's own name always resolves to itself, before any search path.
    if (name === basename(this.loaderPath)) return this.interpreter();
    const libraryPath = splitPathList(this.options.env.LD_LIBRARY_PATH ?? "").map((path) =>
      this.expand(path, this.main),
    );
    const runpath = requester.info.runpath.map((path) => this.expand(path, requester));
    return (
      this.searchRpath(name, requester) ??
      this.searchIn(this.options.extraDirectories, name, "bundle") ??
      this.searchIn(libraryPath, name, "LD_LIBRARY_PATH") ??
      this.searchIn(runpath, name, "runpath") ??
      this.searchCache(name, requester) ??
      (requester.info.noDefaultDirectories
        ? null
        : this.searchIn(this.defaultDirectories, name, "default directory"))
    );
  }

  private interpreter(): Found | null {
    const info = this.open(this.loaderPath);
    return info ? { path: this.loaderPath, via: "interpreter", info } : null;
  }

  /** What is in the process before the first needed entry is read. */
  preloaded(): { name: string; found: Found | null }[] {
    const list: { name: string; found: Found | null }[] = [];
    if (this.main.info.interpreter) list.push({ name: this.loaderPath, found: this.interpreter() });
    let system = "";
    try {
      system = readFileSync(this.inside("/etc/ld.so.preload"), "utf8").replace(/#.*/g, "");
    } catch {
      // Most systems have no such file.
    }
    const names = `${this.options.env.LD_PRELOAD ?? ""} ${system}`.split(/[\s:]+/).filter(Boolean);
    for (const name of names) {
      // A preload that cannot be found is only a warning of the loader, so it does not count as missing.
      const found = this.find(name, this.main);
      if (found) list.push({ name, found: { ...found, via: "preload" } });
    }
    return list;
  }
}
