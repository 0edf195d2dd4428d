import { afterAll, describe, expect, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readBinary } from "../../src/bundle/index.ts";
import { scanDependencies } from "../../src/bundle/scan.ts";
import { tempDir } from "../resolve/support.ts";
import { parseLdd } from "./ldd.ts";

const temp = tempDir();
afterAll(temp.remove);

interface LibraryPlan {
  dir: string;
  name: string;
  needs?: string[];
  flags?: string[];
}

let cases = 0;

/** Compiles libraries and a program that needs them into a directory of their own. */
class Project {
  readonly root = join(temp.path, `case-${++cases}`);

  constructor() {
    mkdirSync(this.root, { recursive: true });
  }

  path(...parts: string[]): string {
    return join(this.root, ...parts);
  }

  private compile(flags: string[], output: string): void {
    const built = Bun.spawnSync(["cc", "-Wl,--no-as-needed", ...flags, "-o", output], { cwd: this.root });
    expect(built.stderr.toString()).toBe("");
  }

  library({ dir, name, needs = [], flags = [] }: LibraryPlan): string {
    const output = this.path(dir, `lib${name}.so`);
    mkdirSync(this.path(dir), { recursive: true });
    writeFileSync(this.path(`${name}.c`), `int ${name}(void) { return 1; }\n`);
    const common = ["-shared", "-fPIC", "-Wl,--allow-shlib-undefined", `-Wl,-soname,lib${name}.so`];
    this.compile([...common, `${name}.c`, ...needs, ...flags], output);
    return output;
  }

  program(needs: string[], flags: string[] = []): string {
    mkdirSync(this.path("bin"), { recursive: true });
    writeFileSync(this.path("main.c"), "int main(void) { return 0; }\n");
    this.compile(["-Wl,--allow-shlib-undefined", "main.c", ...needs, ...flags], this.path("bin", "program"));
    return this.path("bin", "program");
  }
}

/** The scan's answer for the libraries of the test, checked against what ldd says. */
function located(program: string, env: Record<string, string> = {}): Record<string, string | null> {
  const ours = Object.fromEntries(
    scanDependencies(program, { env }).dependencies.map(({ name, path }) => [name, path]),
  );
  const ldd = Bun.spawnSync(["ldd", program], { env: { PATH: process.env.PATH ?? "", ...env } });
  for (const [name, path] of parseLdd(ldd.stdout.toString()))
    if (!name.startsWith("ld-")) expect(`${name} ${ours[name]}`).toBe(`${name} ${path}`);
  return ours;
}

const scanModule = join(import.meta.dir, "../../src/bundle/scan.ts");
const oldTags = "-Wl,--disable-new-dtags";
const newTags = "-Wl,--enable-new-dtags";

describe("the ELF loader's rules", () => {
  test("RPATH is inherited by what it loads, and comes before LD_LIBRARY_PATH", () => {
    const project = new Project();
    const inner = project.library({ dir: "lib", name: "inner" });
    const outer = project.library({ dir: "lib", name: "outer", needs: [inner] });
    project.library({ dir: "other", name: "outer" });
    const program = project.program([outer], [oldTags, "-Wl,-rpath,$ORIGIN/../lib"]);
    expect(readBinary(program)).toMatchObject({ rpath: ["$ORIGIN/../lib"], runpath: [] });
    const found = located(program, { LD_LIBRARY_PATH: project.path("other") });
    expect(found["libouter.so"]).toBe(`${project.path("bin")}/../lib/libouter.so`);
    expect(found["libinner.so"]).toBe(`${project.path("bin")}/../lib/libinner.so`);
  });

  test("RUNPATH is not inherited, and comes after LD_LIBRARY_PATH", () => {
    const project = new Project();
    const inner = project.library({ dir: "lib", name: "inner" });
    const outer = project.library({ dir: "lib", name: "outer", needs: [inner] });
    const program = project.program([outer], [newTags, "-Wl,-rpath,$" + "{ORIGIN}/../lib"]);
    const found = located(program);
    expect(found["libouter.so"]).toBe(`${project.path("bin")}/../lib/libouter.so`);
    expect(found["libinner.so"]).toBeNull();
    expect(scanDependencies(program).missing).toEqual(["libinner.so"]);
    project.library({ dir: "other", name: "outer" });
    const preferred = located(program, { LD_LIBRARY_PATH: project.path("other") });
    expect(preferred["libouter.so"]).toBe(project.path("other", "libouter.so"));
    // As a library it reads the environment that it runs in, too.
    const code = `import { scanDependencies } from ${JSON.stringify(scanModule)};
      console.log(scanDependencies(process.argv.at(-1)).dependencies.find(({ name }) => name === "libouter.so").path)`;
    const env = { PATH: process.env.PATH ?? "", LD_LIBRARY_PATH: project.path("other") };
    const asked = Bun.spawnSync([process.execPath, "-e", code, program], { env });
    expect(asked.stdout.toString().trim()).toBe(project.path("other", "libouter.so"));
  });

  test("a library with RUNPATH does not see its loader's RPATH, but its own dependencies do", () => {
    const project = new Project();
    const leaf = project.library({ dir: "lib", name: "leaf" });
    const inner = project.library({ dir: "lib", name: "inner", needs: [leaf] });
    const outer = project.library({
      dir: "lib",
      name: "outer",
      needs: [inner],
      flags: [newTags, `-Wl,-rpath,${project.path("lib")}`],
    });
    const program = project.program([outer], [oldTags, `-Wl,-rpath,${project.path("lib")}`]);
    const found = located(program);
    expect(found["libinner.so"]).toBe(project.path("lib", "libinner.so"));
    expect(found["libleaf.so"]).toBe(project.path("lib", "libleaf.so"));
  });

  test("$LIB, $PLATFORM and files for another machine", () => {
    const project = new Project();
    const library = project.library({ dir: "lib", name: "thing" });
    const wrong = readFileSync(library);
    // A machine number that is not this one's: the loader passes over it and goes on.
    wrong.writeUInt16LE(wrong.readUInt16LE(18) === 62 ? 183 : 62, 18);
    mkdirSync(project.path("wrong"));
    writeFileSync(project.path("wrong", "libthing.so"), wrong);
    mkdirSync(project.path("text"));
    writeFileSync(project.path("text", "libthing.so"), "not a library");
    mkdirSync(project.path("dir", "libthing.so"), { recursive: true });
    const program = project.program(
      [library],
      [
        newTags,
        `-Wl,-rpath,${project.path("dir")}:${project.path("wrong")}:$ORIGIN/$LIB/$PLATFORM:${project.path("lib")}`,
      ],
    );
    expect(located(program)["libthing.so"]).toBe(project.path("lib", "libthing.so"));
    expect(readBinary(program).runpath[2]).toBe("$ORIGIN/$LIB/$PLATFORM");
    const withText = scanDependencies(program, { env: { LD_LIBRARY_PATH: project.path("text") } });
    expect(withText.missing).toEqual([]);
  });

  test("$ORIGIN of a program started through a link is where the program really is", () => {
    const project = new Project();
    const library = project.library({ dir: "lib", name: "thing" });
    const program = project.program([library], ["-Wl,-rpath,$ORIGIN/../lib"]);
    symlinkSync(program, project.path("link"));
    const scan = scanDependencies(project.path("link"));
    expect(scan.path).toBe(program);
    expect(scan.missing).toEqual([]);
    expect(Bun.spawnSync([project.path("link")]).exitCode).toBe(0);
  });

  test("the default directories are left out for a program that says so", () => {
    const project = new Project();
    const library = project.library({ dir: "lib", name: "thing" });
    const program = project.program([library], ["-Wl,-z,nodefaultlib", `-Wl,-rpath,${project.path("lib")}`]);
    // The program itself does not get libc; the library that it loads looks for it once more, and does.
    expect(located(program)["libc.so.6"]).toMatch(/^\//);
    const scan = scanDependencies(program);
    expect(scan.missing).toEqual(["libc.so.6"]);
    const libc = scan.dependencies.filter(({ name }) => name === "libc.so.6");
    expect(libc.map(({ missing, neededBy }) => [missing, neededBy])).toEqual([
      [true, program],
      [false, library],
    ]);
  });

  test("a name with a slash is opened as it is, and a library loaded once serves every name", () => {
    const project = new Project();
    const plain = project.library({ dir: "lib", name: "plain" });
    const program = project.program([plain], [`-Wl,-rpath,${project.path("lib")}`]);
    copyFileSync(plain, project.path("lib", "libalias.so"));
    const user = project.library({ dir: "lib", name: "user", needs: [project.path("lib", "libalias.so")] });
    expect(readBinary(user).needed.map(({ name }) => name)).toContain("libplain.so");
    expect(located(program)["libplain.so"]).toBe(plain);
    const preloading = scanDependencies(program, { env: { LD_PRELOAD: user } });
    expect(preloading.dependencies.find(({ path }) => path === user)?.via).toBe("preload");
  });

  test("a static program needs nothing, and a damaged one is refused", () => {
    const project = new Project();
    const library = project.library({ dir: "lib", name: "alone", flags: ["-nostdlib"] });
    expect(scanDependencies(library).dependencies).toEqual([]);
    const bytes = readFileSync(library);
    writeFileSync(project.path("cut.so"), bytes.subarray(0, 200));
    expect(() => scanDependencies(project.path("cut.so"))).toThrow("cannot be read as a binary");
    renameSync(library, project.path("gone.so"));
    expect(() => scanDependencies(library)).toThrow("cannot be read as a binary");
  });
});

/** An ld.so.cache as ldconfig writes it; with `old`, after the table of the old format. */
function makeCache(entries: { name: string; path: string; hwcap?: bigint }[], old: boolean): Buffer {
  const header = Buffer.alloc(48);
  header.write("glibc-ld.so.cache1.1", 0, "latin1");
  header.writeUInt32LE(entries.length, 20);
  header[28] = 2;
  const table = Buffer.alloc(entries.length * 24);
  const strings: Buffer[] = [];
  let at = 48 + table.length;
  const addString = (text: string) => {
    const bytes = Buffer.from(`${text}\0`);
    strings.push(bytes);
    at += bytes.length;
    return at - bytes.length;
  };
  for (const [index, { name, path, hwcap = 0n }] of entries.entries()) {
    table.writeInt32LE(3, index * 24);
    table.writeUInt32LE(addString(name), index * 24 + 4);
    table.writeUInt32LE(addString(path), index * 24 + 8);
    table.writeBigUInt64LE(hwcap, index * 24 + 16);
  }
  const modern = Buffer.concat([header, table, ...strings]);
  if (!old) return modern;
  const prefix = Buffer.alloc(32);
  prefix.write("ld.so-1.7.0", 0, "latin1");
  prefix.writeUInt32LE(1, 12);
  return Buffer.concat([prefix, modern]);
}

describe("a system in a directory", () => {
  test.each([false, true])(
    "its cache is read (after an old table: %p) and its ld.so.conf explains",
    (old) => {
      const project = new Project();
      const cached = project.library({ dir: "root/opt/cached", name: "cached", flags: ["-nostdlib"] });
      const listed = project.library({ dir: "root/opt/listed", name: "listed", flags: ["-nostdlib"] });
      const plain = project.library({ dir: "root/usr/lib", name: "plain", flags: ["-nostdlib"] });
      const user = project.library({
        dir: "root/app",
        name: "user",
        needs: [cached, listed, plain],
        flags: ["-nostdlib"],
      });
      mkdirSync(project.path("root/etc"), { recursive: true });
      const cache = makeCache(
        [
          { name: "libcached.so", path: "/opt/legacy/libcached.so", hwcap: 4n },
          { name: "libcached.so", path: "/opt/cached/libcached.so" },
        ],
        old,
      );
      writeFileSync(project.path("root/etc/ld.so.cache"), cache);
      const scan = scanDependencies(user.slice(project.path("root").length), {
        sysroot: project.path("root"),
      });
      expect(scan.dependencies.map(({ name, path, via }) => [name, path, via])).toEqual([
        ["libcached.so", "/opt/cached/libcached.so", "ld.so.cache"],
        ["liblisted.so", null, null],
        ["libplain.so", "/usr/lib/libplain.so", "default directory"],
      ]);
    },
  );
});
