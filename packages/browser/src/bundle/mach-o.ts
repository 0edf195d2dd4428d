import { type BinaryInfo, bareInfo, type ReadBinaryOptions } from "./binary.ts";
import { type ByteSource, invalidBinary } from "./byte-source.ts";

const LOAD_COMMANDS_MAX = 65_536;
const SLICES_MAX = 64;

const LC_REQ_DYLD = 0x80000000;
const LC_LOAD_DYLIB = 0xc;
const LC_ID_DYLIB = 0xd;
const LC_LOAD_DYLINKER = 0xe;
const LC_LOAD_WEAK_DYLIB = 0x18 | LC_REQ_DYLD;
const LC_RPATH = 0x1c | LC_REQ_DYLD;
const LC_REEXPORT_DYLIB = 0x1f | LC_REQ_DYLD;
const LC_LAZY_LOAD_DYLIB = 0x20;
const LC_LOAD_UPWARD_DYLIB = 0x23 | LC_REQ_DYLD;

const requiredLoads = new Set([LC_LOAD_DYLIB, LC_REEXPORT_DYLIB, LC_LOAD_UPWARD_DYLIB].map((c) => c >>> 0));
const optionalLoads = new Set([LC_LOAD_WEAK_DYLIB, LC_LAZY_LOAD_DYLIB].map((c) => c >>> 0));

const machineNames: Record<number, string> = {
  7: "i386",
  12: "arm",
  18: "ppc",
  16777223: "x86_64",
  16777228: "arm64",
  16777234: "ppc64",
};

function machineName(cpuType: number): string {
  return machineNames[cpuType] ?? `cpu-${cpuType}`;
}

interface Slice {
  machine: string;
  offset: number;
}

/** The parts of a universal file; a thin file is its own only part. The table itself is big-endian. */
function readSlices(source: ByteSource): Slice[] {
  source.littleEndian = false;
  const magic = source.u32(0);
  const wide = magic === 0xcafebabf;
  if (!wide && magic !== 0xcafebabe) return [{ machine: "", offset: 0 }];
  const count = source.u32(4);
  if (count === 0 || count > SLICES_MAX)
    throw invalidBinary(source.path, `a universal file of ${count} parts is not plausible`);
  const entryBytes = wide ? 32 : 20;
  const table = source.view(8, count * entryBytes);
  return Array.from({ length: count }, (_, index) => {
    const at = index * entryBytes;
    return {
      machine: machineName(table.getUint32(at)),
      offset: wide ? Number(table.getBigUint64(at + 8)) : table.getUint32(at + 8),
    };
  });
}

export function readMachO(source: ByteSource, options: ReadBinaryOptions = {}): BinaryInfo {
  const slices = readSlices(source);
  const slice = slices.find(({ machine }) => machine === options.machine) ?? slices[0]!;
  const magic = source.bytes(slice.offset, 4).readUInt32BE(0);
  source.littleEndian = magic === 0xcefaedfe || magic === 0xcffaedfe;
  const wide = magic === 0xfeedfacf || magic === 0xcffaedfe;
  if (!wide && magic !== 0xfeedface && magic !== 0xcefaedfe)
    throw invalidBinary(source.path, `the part at ${slice.offset} is not Mach-O`);

  const info = bareInfo(source, "macho", machineName(source.u32(slice.offset + 4)), wide ? 64 : 32);
  const count = source.u32(slice.offset + 16);
  if (count > LOAD_COMMANDS_MAX) throw invalidBinary(source.path, `${count} load commands are not plausible`);
  let at = slice.offset + (wide ? 32 : 28);
  for (let index = 0; index < count; index++) {
    const command = source.u32(at);
    const size = source.u32(at + 4);
    if (size < 8) throw invalidBinary(source.path, `load command ${index} has no size`);
    // In all of these the first field after the size is the offset of the string from the command's start.
    const text = () => source.cString(at + source.u32(at + 8));
    if (requiredLoads.has(command)) info.needed.push({ name: text(), optional: false });
    else if (optionalLoads.has(command)) info.needed.push({ name: text(), optional: true });
    else if (command === LC_ID_DYLIB) info.soname = text();
    else if (command === LC_RPATH >>> 0) info.rpath.push(text());
    else if (command === LC_LOAD_DYLINKER) info.interpreter = text();
    at += size;
  }
  info.dynamic = info.interpreter !== undefined || info.soname !== undefined || info.needed.length > 0;
  return info;
}
