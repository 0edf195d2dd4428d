import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { detectFormat, readBinary } from "../../src/bundle/index.ts";
import { scanDependencies } from "../../src/bundle/scan.ts";
import { SetupError } from "../../src/resolve/errors.ts";
import { tempDir } from "../resolve/support.ts";
import { CPU_ARM64, CPU_X86_64, makeFat, makeMachO, makePe } from "./images.ts";

const temp = tempDir();
afterAll(temp.remove);

function save(name: string, bytes: Buffer): string {
  const path = join(temp.path, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, bytes);
  return path;
}

const located = (path: string, sysroot = "") =>
  scanDependencies(path, { sysroot }).dependencies.map(({ name, path: found, via, missing, optional }) => ({
    name,
    path: found,
    via,
    ...(missing ? { missing, optional } : {}),
  }));

describe("Mach-O", () => {
  test("loader tokens, inherited rpaths, weak libraries and the system's cache", () => {
    const root = join(temp.path, "mac");
    const dylib = (id: string, plan = {}) => makeMachO({ cpu: CPU_ARM64, id, ...plan });
    save(
      "mac/App.app/MacOS/App",
      makeMachO({
        cpu: CPU_ARM64,
        loads: [
          { name: "@rpath/libA.dylib" },
          { name: "@executable_path/../Frameworks/libB.dylib" },
          { name: "/usr/lib/libSystem.B.dylib" },
          { name: "@rpath/libWeak.dylib", weak: true },
          { name: "/opt/gone/libGone.dylib" },
        ],
        rpaths: ["/nowhere", "@loader_path/../Frameworks"],
      }),
    );
    // libA finds libC through the program's rpath, in which @loader_path means the program.
    save(
      "mac/App.app/Frameworks/libA.dylib",
      dylib("@rpath/libA.dylib", {
        loads: [{ name: "@rpath/libC.dylib" }, { name: "@loader_path/deep/libD.dylib" }],
      }),
    );
    save("mac/App.app/Frameworks/libB.dylib", dylib("libB"));
    save("mac/App.app/Frameworks/libC.dylib", dylib("libC"));
    save("mac/App.app/Frameworks/deep/libD.dylib", dylib("libD"));
    const frameworks = "/App.app/Frameworks";
    expect(located("/App.app/MacOS/App", root)).toEqual([
      { name: "@rpath/libA.dylib", path: `${frameworks}/libA.dylib`, via: "rpath" },
      { name: "@executable_path/../Frameworks/libB.dylib", path: `${frameworks}/libB.dylib`, via: "path" },
      { name: "/usr/lib/libSystem.B.dylib", path: null, via: "dyld shared cache" },
      { name: "@rpath/libWeak.dylib", path: null, via: null, missing: true, optional: true },
      { name: "/opt/gone/libGone.dylib", path: null, via: null, missing: true, optional: false },
      { name: "@rpath/libC.dylib", path: `${frameworks}/libC.dylib`, via: "rpath" },
      { name: "@loader_path/deep/libD.dylib", path: `${frameworks}/deep/libD.dylib`, via: "path" },
    ]);
    expect(scanDependencies("/App.app/MacOS/App", { sysroot: root }).missing).toEqual([
      "/opt/gone/libGone.dylib",
    ]);
  });

  test("universal files are read for the machine that is asked for", () => {
    const intel = makeMachO({ cpu: CPU_X86_64, loads: [{ name: "/usr/lib/intel.dylib" }] });
    const arm = makeMachO({ cpu: CPU_ARM64, loads: [{ name: "/usr/lib/arm.dylib" }] });
    const path = save(
      "universal",
      makeFat([
        { cpu: CPU_X86_64, bytes: intel },
        { cpu: CPU_ARM64, bytes: arm },
      ]),
    );
    expect(detectFormat(path)).toBe("macho");
    expect(readBinary(path)).toMatchObject({ machine: "x86_64", needed: [{ name: "/usr/lib/intel.dylib" }] });
    expect(readBinary(path, { machine: "arm64" })).toMatchObject({
      machine: "arm64",
      needed: [{ name: "/usr/lib/arm.dylib" }],
    });
    const big = save(
      "big",
      makeMachO({ cpu: CPU_ARM64, bigEndian: true, loads: [{ name: "/usr/lib/x.dylib" }] }),
    );
    expect(readBinary(big)).toMatchObject({ littleEndian: false, needed: [{ name: "/usr/lib/x.dylib" }] });
  });
});

describe("PE", () => {
  test.each([true, false])("imports, delayed imports and what Windows has itself (64-bit: %p)", (wide) => {
    const folder = wide ? "pe64" : "pe32";
    save(`${folder}/helper.dll`, makePe({ wide, imports: ["USER32.dll", "gone.dll"] }));
    const path = save(
      `${folder}/app.exe`,
      makePe({
        wide,
        imports: ["KERNEL32.dll", "Helper.dll", "api-ms-win-core-file-l1-1-0.dll"],
        delayImports: ["later.dll"],
      }),
    );
    expect(readBinary(path)).toMatchObject({ format: "pe", bits: wide ? 64 : 32 });
    expect(located(path)).toEqual([
      { name: "KERNEL32.dll", path: null, via: "part of Windows" },
      { name: "Helper.dll", path: join(temp.path, folder, "helper.dll"), via: "program directory" },
      { name: "api-ms-win-core-file-l1-1-0.dll", path: null, via: "api set" },
      { name: "later.dll", path: null, via: null, missing: true, optional: true },
      { name: "USER32.dll", path: null, via: "part of Windows" },
      { name: "gone.dll", path: null, via: null, missing: true, optional: false },
    ]);
  });
});

describe("damaged files", () => {
  const samples: [string, () => Buffer][] = [
    ["ELF", () => readFileSync("/bin/ls")],
    ["Mach-O", () => makeMachO({ cpu: CPU_ARM64, loads: [{ name: "@rpath/a" }], rpaths: ["/x"] })],
    ["PE", () => makePe({ imports: ["a.dll"], delayImports: ["b.dll"] })],
  ];
  test.each(samples)(
    "a %s file with any header byte changed is read or refused, never worse",
    (name, make) => {
      const original = make();
      let refused = 0;
      for (let at = 0; at < Math.min(original.length, 1200); at += 3) {
        const damaged = Buffer.from(original);
        damaged[at] = damaged[at]! ^ 0xff;
        const path = save(`damaged-${name}`, damaged);
        try {
          readBinary(path);
        } catch (error) {
          expect(error).toBeInstanceOf(SetupError);
          refused++;
        }
      }
      expect(refused).toBeGreaterThan(0);
    },
  );

  test("a script is none of the formats", () => {
    const path = save("script", Buffer.from(`#!/bin/sh\n${"#".repeat(100)}\n`));
    expect(detectFormat(path)).toBeNull();
    expect(() => readBinary(path)).toThrow("neither ELF, Mach-O nor PE");
  });
});
