import { type BinaryInfo, bareInfo } from "./binary.ts";
import { type ByteSource, invalidBinary } from "./byte-source.ts";

const PT_LOAD = 1;
const PT_DYNAMIC = 2;
const PT_INTERP = 3;
const PROGRAM_HEADERS_MAX = 4096;
const DYNAMIC_ENTRIES_MAX = 65_536;

const DT_NULL = 0;
const DT_NEEDED = 1;
const DT_STRTAB = 5;
const DT_SONAME = 14;
const DT_RPATH = 15;
const DT_RUNPATH = 29;
const DT_FLAGS_1 = 0x6ffffffb;
const DF_1_NODEFLIB = 0x800;

const machineNames: Record<number, string> = {
  3: "i386",
  8: "mips",
  20: "ppc",
  21: "ppc64",
  22: "s390x",
  40: "arm",
  62: "x86_64",
  183: "aarch64",
  243: "riscv",
  258: "loongarch64",
};

interface Segment {
  type: number;
  offset: number;
  address: number;
  fileSize: number;
}

interface Layout {
  source: ByteSource;
  wide: boolean;
}

/** A native word: 8 bytes in 64-bit files, 4 in 32-bit ones. */
function word(view: DataView, offset: number, { source, wide }: Layout): number {
  return wide
    ? Number(view.getBigUint64(offset, source.littleEndian))
    : view.getUint32(offset, source.littleEndian);
}

function readSegments(layout: Layout): Segment[] {
  const { source, wide } = layout;
  const header = source.view(0, wide ? 64 : 52);
  const tableOffset = word(header, wide ? 32 : 28, layout);
  const entrySize = header.getUint16(wide ? 54 : 42, source.littleEndian);
  const count = header.getUint16(wide ? 56 : 44, source.littleEndian);
  if (count > PROGRAM_HEADERS_MAX || (count > 0 && entrySize < (wide ? 56 : 32)))
    throw invalidBinary(source.path, `its program header table (${count} × ${entrySize}) is not plausible`);
  const table = source.view(tableOffset, entrySize * count);
  return Array.from({ length: count }, (_, index) => {
    const at = index * entrySize;
    return {
      type: table.getUint32(at, source.littleEndian),
      offset: word(table, at + (wide ? 8 : 4), layout),
      address: word(table, at + (wide ? 16 : 8), layout),
      fileSize: word(table, at + (wide ? 32 : 16), layout),
    };
  });
}

function readDynamic(layout: Layout, segment: Segment): [tag: number, value: number][] {
  const wordBytes = layout.wide ? 8 : 4;
  const count = Math.floor(segment.fileSize / (2 * wordBytes));
  if (count > DYNAMIC_ENTRIES_MAX)
    throw invalidBinary(layout.source.path, `${count} dynamic entries are not plausible`);
  const table = layout.source.view(segment.offset, count * 2 * wordBytes);
  const entries: [number, number][] = [];
  for (let index = 0; index < count; index++) {
    const tag = word(table, index * 2 * wordBytes, layout);
    if (tag === DT_NULL) break;
    entries.push([tag, word(table, (index * 2 + 1) * wordBytes, layout)]);
  }
  return entries;
}

/** Empty elements of a search path mean the current directory, as the loader reads them. */
export function splitPathList(list: string): string[] {
  return list === "" ? [] : list.split(/[:;]/).map((entry) => entry || ".");
}

export function readElf(source: ByteSource): BinaryInfo {
  const ident = source.bytes(0, 16);
  const wide = ident[4] === 2;
  if (!wide && ident[4] !== 1) throw invalidBinary(source.path, `ELF class ${ident[4]} is unknown`);
  source.littleEndian = ident[5] !== 2;
  const layout = { source, wide };
  const segments = readSegments(layout);
  const machine = source.u16(18);
  const info = bareInfo(source, "elf", machineNames[machine] ?? `machine-${machine}`, wide ? 64 : 32);
  const interpreter = segments.find(({ type }) => type === PT_INTERP);
  if (interpreter) info.interpreter = source.cString(interpreter.offset);
  const dynamicSegment = segments.find(({ type }) => type === PT_DYNAMIC);
  // A file kept only for its debug symbols has a dynamic segment without content.
  if (!dynamicSegment || dynamicSegment.fileSize === 0) return info;
  info.dynamic = true;
  const entries = readDynamic(layout, dynamicSegment);
  const stringTable = entries.find(([tag]) => tag === DT_STRTAB)?.[1];
  if (stringTable === undefined) return info;
  const home = segments.find(
    ({ type, address, fileSize }) =>
      type === PT_LOAD && stringTable >= address && stringTable < address + fileSize,
  );
  if (!home) throw invalidBinary(source.path, "its dynamic string table lies in no loaded segment");
  const text = (offset: number) => source.cString(stringTable - home.address + home.offset + offset);
  for (const [tag, value] of entries) {
    if (tag === DT_NEEDED) info.needed.push({ name: text(value), optional: false });
    else if (tag === DT_SONAME) info.soname = text(value);
    else if (tag === DT_RPATH) info.rpath = splitPathList(text(value));
    else if (tag === DT_RUNPATH) info.runpath = splitPathList(text(value));
    else if (tag === DT_FLAGS_1) info.noDefaultDirectories = (value & DF_1_NODEFLIB) !== 0;
  }
  return info;
}
