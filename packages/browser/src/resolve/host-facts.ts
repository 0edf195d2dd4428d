import { readdirSync, readFileSync, statfsSync } from "node:fs";

export interface HostFacts {
  platform: string;
  arch: string;
  libc: "glibc" | "musl" | null;
  root: boolean;
  /** Whether Chromium's own sandbox can work here. */
  sandbox: "usable" | "unusable as root" | "blocked by the kernel" | "unknown";
  sharedMemoryBytes: number | null;
  /** What a user should know about this machine. */
  notes: string[];
}

/** Docker's default /dev/shm of 64 MiB makes large pages crash. */
const SHARED_MEMORY_BYTES_MIN = 512 * 1024 * 1024;

function readSharedMemoryBytes(): number | null {
  try {
    const { blocks, bsize } = statfsSync("/dev/shm");
    return blocks * bsize;
  } catch {
    return null;
  }
}

/** Chromium must then keep its shared memory in ordinary files. */
export function isSharedMemorySmall(bytes = readSharedMemoryBytes()): boolean {
  return bytes !== null && bytes < SHARED_MEMORY_BYTES_MIN;
}

function readKernelSetting(path: string): string | null {
  try {
    return readFileSync(`/proc/sys/${path}`, "utf8").trim();
  } catch {
    return null;
  }
}

export function libcOf(platform: NodeJS.Platform): HostFacts["libc"] {
  if (platform !== "linux") return null;
  const names = ["/lib", "/lib64"].flatMap((directory) => {
    try {
      return readdirSync(directory);
    } catch {
      return [];
    }
  });
  if (names.some((name) => name.startsWith("ld-linux"))) return "glibc";
  return names.some((name) => name.startsWith("ld-musl")) ? "musl" : "glibc";
}

function sandboxOf(platform: NodeJS.Platform, root: boolean): HostFacts["sandbox"] {
  if (platform !== "linux") return "usable";
  if (root) return "unusable as root";
  const blocked =
    readKernelSetting("kernel/unprivileged_userns_clone") === "0" ||
    readKernelSetting("user/max_user_namespaces") === "0" ||
    readKernelSetting("kernel/apparmor_restrict_unprivileged_userns") === "1";
  return blocked ? "blocked by the kernel" : "usable";
}

export function readHostFacts(): HostFacts {
  const { platform, arch } = process;
  const root = platform !== "win32" && process.getuid?.() === 0;
  const sandbox = sandboxOf(platform, root);
  const sharedMemoryBytes = readSharedMemoryBytes();
  const notes: string[] = [];
  if (sandbox === "unusable as root")
    notes.push(
      "Running as root: Chromium's sandbox does not work, so pages run without it. Prefer a normal user.",
    );
  if (sandbox === "blocked by the kernel")
    notes.push(
      "User namespaces are restricted, so Chromium's sandbox may not start. Allow them (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0) or run without the sandbox.",
    );
  if (isSharedMemorySmall(sharedMemoryBytes))
    notes.push(
      "/dev/shm is small, so Chromium uses the temporary folder instead. In Docker --shm-size=1g is faster.",
    );
  return { platform, arch, libc: libcOf(platform), root, sandbox, sharedMemoryBytes, notes };
}

/** The Debian packages of the libraries that Chrome links to and minimal images lack. */
const debianPackages: [pattern: RegExp, name: string][] = [
  [/^lib(nss3|nssutil3|smime3|ssl3)\.so/, "libnss3"],
  [/^lib(nspr4|plc4|plds4)\.so/, "libnspr4"],
  [/^libatk-1\.0\.so/, "libatk1.0-0"],
  [/^libatk-bridge-2\.0\.so/, "libatk-bridge2.0-0"],
  [/^libatspi\.so/, "libatspi2.0-0"],
  [/^libcups\.so/, "libcups2"],
  [/^libdrm\.so/, "libdrm2"],
  [/^libdbus-1\.so/, "libdbus-1-3"],
  [/^lib(glib|gobject|gio|gmodule)-2\.0\.so/, "libglib2.0-0"],
  [/^libexpat\.so/, "libexpat1"],
  [/^libX11\.so/, "libx11-6"],
  [/^libXcomposite\.so/, "libxcomposite1"],
  [/^libXdamage\.so/, "libxdamage1"],
  [/^libXext\.so/, "libxext6"],
  [/^libXfixes\.so/, "libxfixes3"],
  [/^libXrandr\.so/, "libxrandr2"],
  [/^libxcb\.so/, "libxcb1"],
  [/^libxkbcommon\.so/, "libxkbcommon0"],
  [/^libgbm\.so/, "libgbm1"],
  [/^libpango-1\.0\.so/, "libpango-1.0-0"],
  [/^libcairo\.so/, "libcairo2"],
  [/^libasound\.so/, "libasound2"],
  [/^libudev\.so/, "libudev1"],
  [/^libgtk-3\.so/, "libgtk-3-0"],
  [/^libvulkan\.so/, "libvulkan1"],
  [/^libstdc\+\+\.so/, "libstdc++6"],
  [/^libgcc_s\.so/, "libgcc-s1"],
];

/** Renamed with the change to 64-bit time, in Debian 13 and Ubuntu 24.04. */
const renamedPackages = new Set([
  "libasound2",
  "libatk1.0-0",
  "libatk-bridge2.0-0",
  "libatspi2.0-0",
  "libcups2",
  "libglib2.0-0",
  "libgtk-3-0",
]);

/** The text of /etc/os-release; empty where there is none. */
export function readOsRelease(): string {
  try {
    return readFileSync("/etc/os-release", "utf8");
  } catch {
    return "";
  }
}

function hasRenamedPackages(osRelease: string): boolean {
  const id = /^ID="?([a-z]+)/m.exec(osRelease)?.[1];
  const version = Number(/^VERSION_ID="?([0-9.]+)/m.exec(osRelease)?.[1] ?? 0);
  return (id === "debian" && version >= 13) || (id === "ubuntu" && version >= 24.04);
}

export function debianPackageOf(library: string, osRelease: string): string | null {
  const name = debianPackages.find(([pattern]) => pattern.test(library))?.[1] ?? null;
  return name && renamedPackages.has(name) && hasRenamedPackages(osRelease) ? `${name}t64` : name;
}
