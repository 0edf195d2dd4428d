/** Small Mach-O and PE files, written by hand: no compiler for them is at hand on Linux. */

export interface MachOPlan {
  cpu: number;
  id?: string;
  loads?: { name: string; weak?: boolean }[];
  rpaths?: string[];
  bigEndian?: boolean;
}

export const CPU_X86_64 = 0x01000007;
export const CPU_ARM64 = 0x0100000c;

function stringCommand(command: number, text: string, fixedBytes: number, big: boolean): Buffer {
  const size = Math.ceil((fixedBytes + text.length + 1) / 8) * 8;
  const bytes = Buffer.alloc(size);
  const put = (value: number, at: number) =>
    big ? bytes.writeUInt32BE(value, at) : bytes.writeUInt32LE(value, at);
  put(command >>> 0, 0);
  put(size, 4);
  put(fixedBytes, 8);
  bytes.write(text, fixedBytes);
  return bytes;
}

export function makeMachO({ cpu, id, loads = [], rpaths = [], bigEndian = false }: MachOPlan): Buffer {
  const commands = [
    ...(id ? [stringCommand(0xd, id, 24, bigEndian)] : [stringCommand(0xe, "/usr/lib/dyld", 12, bigEndian)]),
    ...loads.map(({ name, weak }) => stringCommand(weak ? 0x80000018 : 0xc, name, 24, bigEndian)),
    ...rpaths.map((path) => stringCommand(0x8000001c, path, 12, bigEndian)),
  ];
  const header = Buffer.alloc(32);
  const fields = [0xfeedfacf, cpu, 0, id ? 6 : 2, commands.length, Buffer.concat(commands).length, 0, 0];
  for (const [index, value] of fields.entries())
    if (bigEndian) header.writeUInt32BE(value, index * 4);
    else header.writeUInt32LE(value, index * 4);
  return Buffer.concat([header, ...commands]);
}

export function makeFat(parts: { cpu: number; bytes: Buffer }[]): Buffer {
  const table = Buffer.alloc(4096);
  table.writeUInt32BE(0xcafebabe, 0);
  table.writeUInt32BE(parts.length, 4);
  const bodies: Buffer[] = [];
  let offset = 4096;
  for (const [index, { cpu, bytes }] of parts.entries()) {
    const at = 8 + index * 20;
    table.writeUInt32BE(cpu, at);
    table.writeUInt32BE(offset, at + 8);
    table.writeUInt32BE(bytes.length, at + 12);
    bodies.push(bytes);
    offset += bytes.length;
  }
  return Buffer.concat([table, ...bodies]);
}

export interface PePlan {
  imports?: string[];
  delayImports?: string[];
  wide?: boolean;
}

const SECTION_ADDRESS = 0x1000;
const SECTION_OFFSET = 0x400;

/** One section holds both import tables and their names. */
export function makePe({ imports = [], delayImports = [], wide = true }: PePlan): Buffer {
  const importTable = Buffer.alloc((imports.length + 1) * 20);
  const delayTable = Buffer.alloc((delayImports.length + 1) * 32);
  const names: Buffer[] = [];
  let nameAddress = SECTION_ADDRESS + importTable.length + delayTable.length;
  const addName = (text: string) => {
    const bytes = Buffer.from(`${text}\0`);
    names.push(bytes);
    nameAddress += bytes.length;
    return nameAddress - bytes.length;
  };
  for (const [index, name] of imports.entries()) importTable.writeUInt32LE(addName(name), index * 20 + 12);
  for (const [index, name] of delayImports.entries()) {
    delayTable.writeUInt32LE(1, index * 32);
    delayTable.writeUInt32LE(addName(name), index * 32 + 4);
  }
  const section = Buffer.concat([importTable, delayTable, ...names]);
  const head = Buffer.alloc(SECTION_OFFSET);
  head.write("MZ", 0, "latin1");
  head.writeUInt32LE(0x80, 0x3c);
  head.write("PE\0\0", 0x80, "latin1");
  head.writeUInt16LE(wide ? 0x8664 : 0x14c, 0x84);
  head.writeUInt16LE(1, 0x86);
  const optionalBytes = (wide ? 112 : 96) + 16 * 8;
  head.writeUInt16LE(optionalBytes, 0x94);
  const optional = 0x98;
  head.writeUInt16LE(wide ? 0x20b : 0x10b, optional);
  const directories = optional + (wide ? 112 : 96);
  head.writeUInt32LE(16, directories - 4);
  head.writeUInt32LE(SECTION_ADDRESS, directories + 8);
  if (delayImports.length > 0) head.writeUInt32LE(SECTION_ADDRESS + importTable.length, directories + 13 * 8);
  const entry = optional + optionalBytes;
  head.writeUInt32LE(section.length, entry + 8);
  head.writeUInt32LE(SECTION_ADDRESS, entry + 12);
  head.writeUInt32LE(section.length, entry + 16);
  head.writeUInt32LE(SECTION_OFFSET, entry + 20);
  return Buffer.concat([head, section]);
}
