import { statSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { type BinaryInfo, readBinary } from "./binary.ts";
import type { Found, LoadedObject, LoaderOptions, LoaderRules } from "./walk.ts";

function openAs(path: string, main: LoadedObject): BinaryInfo | null {
  try {
    if (!statSync(path).isFile()) return null;
    const info = readBinary(path, { machine: main.info.machine });
    return info.format === main.info.format && info.machine === main.info.machine ? info : null;
  } catch {
    return null;
  }
}

/** dyld's search: tokens, the chain of LC_RPATH, and the system's own libraries, which live in no file. */
export class MachOLoader implements LoaderRules {
  constructor(
    private readonly main: LoadedObject,
    private readonly options: LoaderOptions,
  ) {}

  key(name: string): string {
    return name;
  }

  private at(path: string, via: string): Found | null {
    const info = openAs(this.options.sysroot ? join(this.options.sysroot, path) : path, this.main);
    return info ? { path, via, info } : null;
  }

  private expand(path: string, object: LoadedObject): string {
    return posix.normalize(
      path
        .replace(/^@executable_path(?=\/|$)/, dirname(this.main.path))
        .replace(/^@loader_path(?=\/|$)/, dirname(object.path)),
    );
  }

  find(name: string, requester: LoadedObject): Found | null {
    const leaf = posix.basename(name);
    const overrides = [
      ...this.options.extraDirectories,
      ...(this.options.env.DYLD_LIBRARY_PATH?.split(":") ?? []),
    ];
    for (const directory of overrides.filter(Boolean)) {
      const found = this.at(join(directory, leaf), "DYLD_LIBRARY_PATH");
      if (found) return found;
    }
    if (name.startsWith("@rpath/")) {
      // Each loader's own entries apply, and inside them @loader_path means that loader.
      for (let object: LoadedObject | null = requester; object; object = object.loader)
        for (const rpath of object.info.rpath) {
          const found = this.at(join(this.expand(rpath, object), name.slice("@rpath/".length)), "rpath");
          if (found) return found;
        }
      return null;
    }
    const path = this.expand(name, requester);
    const found = this.at(path, "path");
    if (found) return found;
    if (/^\/(usr\/lib|System\/Library|System\/iOSSupport)\//.test(path))
      return { path: null, via: "dyld shared cache", info: null };
    return this.at(join("/usr/local/lib", leaf), "fallback") ?? this.at(join("/usr/lib", leaf), "fallback");
  }
}

/** DLLs that every supported Windows has; needed when a Windows program is scanned on another system. */
const windowsLibraries = new Set(
  (
    "advapi32 avrt bcrypt bcryptprimitives cfgmgr32 comctl32 comdlg32 credui crypt32 cryptui d3d11 d3d12 d3d9 " +
    "dbghelp dcomp dhcpcsvc dnsapi dwmapi dwrite dxgi dxva2 fontsub gdi32 hid imm32 iphlpapi kernel32 kernelbase " +
    "mf mfplat mfreadwrite mscoree mpr msimg32 msi msvcrt ncrypt netapi32 ntdll ole32 oleacc oleaut32 " +
    "opengl32 pdh powrprof propsys psapi rpcrt4 secur32 setupapi shcore shell32 shlwapi uiautomationcore " +
    "urlmon user32 userenv usp10 uxtheme version wevtapi winhttp wininet winmm winspool.drv wintrust ws2_32 " +
    "wtsapi32 wlanapi"
  )
    .split(" ")
    .map((name) => (name.includes(".") ? name : `${name}.dll`)),
);

/** The Windows search: the program's directory, the system's, then PATH. */
export class PeLoader implements LoaderRules {
  constructor(
    private readonly main: LoadedObject,
    private readonly options: LoaderOptions,
  ) {}

  key(name: string): string {
    return name.toLowerCase();
  }

  find(name: string): Found | null {
    const lower = name.toLowerCase();
    if (/^(api|ext)-ms-/.test(lower)) return { path: null, via: "api set", info: null };
    const windows = this.options.env.SystemRoot ?? this.options.env.SYSTEMROOT;
    const places: [directory: string, via: string][] = [
      [dirname(this.main.path), "program directory"],
      ...this.options.extraDirectories.map((path): [string, string] => [path, "bundle"]),
    ];
    if (windows) places.push([join(windows, "System32"), "system directory"], [windows, "system directory"]);
    if (process.platform === "win32")
      for (const path of (this.options.env.Path ?? this.options.env.PATH ?? "").split(";"))
        if (path) places.push([path, "PATH"]);
    for (const [directory, via] of places)
      for (const spelling of new Set([name, lower])) {
        const path = join(directory, spelling);
        const info = openAs(this.options.sysroot ? join(this.options.sysroot, path) : path, this.main);
        if (info) return { path, via, info };
      }
    return windowsLibraries.has(lower) ? { path: null, via: "part of Windows", info: null } : null;
  }
}
