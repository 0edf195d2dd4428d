import { ByteSource, invalidBinary } from "./byte-source.ts";
import { readElf } from "./elf.ts";
import { readMachO } from "./mach-o.ts";
import { readPe } from "./pe.ts";

export type BinaryFormat = "elf" | "macho" | "pe";

export interface NeededLibrary {
  /** The name as the binary asks for it: a soname, a path with @rpath or $ORIGIN, a DLL name. */
  name: string;
  /** The loader goes on without it: weak dylibs and delay-loaded DLLs. */
  optional: boolean;
}

/** What a binary says about how it wants to be loaded. */
export interface BinaryInfo {
  path: string;
  format: BinaryFormat;
  machine: string;
  bits: 32 | 64;
  littleEndian: boolean;
  needed: NeededLibrary[];
  /** DT_RPATH of an ELF file, LC_RPATH of a Mach-O file. */
  rpath: string[];
  runpath: string[];
  /** Its own name for others to ask for: DT_SONAME, LC_ID_DYLIB. */
  soname?: string;
  interpreter?: string;
  /** DF_1_NODEFLIB: the default directories are not searched on its behalf. */
  noDefaultDirectories: boolean;
  /** False for a statically linked program, which needs nothing. */
  dynamic: boolean;
}

/** Of a binary that asks for nothing. */
export const bareInfo = (
  { path, littleEndian }: ByteSource,
  format: BinaryFormat,
  machine: string,
  bits: 32 | 64,
): BinaryInfo => ({
  path,
  format,
  machine,
  bits,
  littleEndian,
  needed: [],
  rpath: [],
  runpath: [],
  noDefaultDirectories: false,
  dynamic: false,
});

export interface ReadBinaryOptions {
  /** Which part of a universal Mach-O file to read; the first one when it is not there. */
  machine?: string;
}

const machOMagics = new Set([0xfeedface, 0xfeedfacf, 0xcefaedfe, 0xcffaedfe, 0xcafebabe, 0xcafebabf]);

function formatOf(source: ByteSource): BinaryFormat | null {
  if (source.size < 64) return null;
  const magic = source.bytes(0, 4);
  if (magic.equals(Buffer.from([0x7f, 0x45, 0x4c, 0x46]))) return "elf";
  if (machOMagics.has(magic.readUInt32BE(0))) return "macho";
  return magic.toString("latin1", 0, 2) === "MZ" ? "pe" : null;
}

/** The format by the first bytes; null for a script or anything else. */
export function detectFormat(path: string): BinaryFormat | null {
  return ByteSource.with(path, formatOf);
}

export function readBinary(path: string, options: ReadBinaryOptions = {}): BinaryInfo {
  return ByteSource.with(path, (source) => {
    const format = formatOf(source);
    if (format === "elf") return readElf(source);
    if (format === "macho") return readMachO(source, options);
    if (format === "pe") return readPe(source);
    throw invalidBinary(path, "it is neither ELF, Mach-O nor PE");
  });
}
