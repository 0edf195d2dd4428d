import { type BinaryInfo, bareInfo, type NeededLibrary } from "./binary.ts";
import { type ByteSource, invalidBinary } from "./byte-source.ts";

const PE_HEADER_OFFSET_AT = 0x3c;
const COFF_HEADER_BYTES = 24;
const SECTION_BYTES = 40;
const SECTIONS_MAX = 96;
const IMPORTS_MAX = 4096;
const IMPORT_DIRECTORY = 1;
const DELAY_IMPORT_DIRECTORY = 13;

const machineNames: Record<number, string> = {
  332: "i386",
  452: "arm",
  34404: "x86_64",
  43620: "arm64",
};

interface Section {
  address: number;
  size: number;
  offset: number;
}

interface Image {
  source: ByteSource;
  sections: Section[];
  imageBase: number;
}

function readSections(source: ByteSource, tableOffset: number, count: number): Section[] {
  if (count > SECTIONS_MAX) throw invalidBinary(source.path, `${count} sections are not plausible`);
  const table = source.view(tableOffset, count * SECTION_BYTES);
  return Array.from({ length: count }, (_, index) => {
    const at = index * SECTION_BYTES;
    const virtualSize = table.getUint32(at + 8, true);
    const rawSize = table.getUint32(at + 16, true);
    return {
      address: table.getUint32(at + 12, true),
      size: Math.max(virtualSize, rawSize),
      offset: table.getUint32(at + 20, true),
    };
  });
}

function fileOffset({ source, sections }: Image, address: number): number {
  const home = sections.find(
    (section) => address >= section.address && address < section.address + section.size,
  );
  if (!home) throw invalidBinary(source.path, `address ${address} lies in no section`);
  return address - home.address + home.offset;
}

interface ImportTable {
  address: number;
  entryBytes: number;
  nameAt: number;
  optional: boolean;
}

/** Both import tables are arrays of descriptors that end with one whose name is zero. */
function readImports(image: Image, table: ImportTable): NeededLibrary[] {
  if (table.address === 0) return [];
  const { source } = image;
  const start = fileOffset(image, table.address);
  const found: NeededLibrary[] = [];
  for (let index = 0; index < IMPORTS_MAX; index++) {
    const at = start + index * table.entryBytes;
    const name = source.u32(at + table.nameAt);
    if (name === 0) return found;
    // Old delay-import descriptors (attribute bit 0 clear) hold absolute addresses.
    const absolute = table.optional && (source.u32(at) & 1) === 0;
    const address = absolute ? name - image.imageBase : name;
    found.push({ name: source.cString(fileOffset(image, address)), optional: table.optional });
  }
  throw invalidBinary(source.path, `more than ${IMPORTS_MAX} imports are not plausible`);
}

export function readPe(source: ByteSource): BinaryInfo {
  source.littleEndian = true;
  const header = source.u32(PE_HEADER_OFFSET_AT);
  if (source.bytes(header, 4).toString("latin1") !== "PE\0\0")
    throw invalidBinary(source.path, "it has a DOS header but no PE header");
  const machine = source.u16(header + 4);
  const optionalHeader = header + COFF_HEADER_BYTES;
  const optionalBytes = source.u16(header + 20);
  const wide = source.u16(optionalHeader) === 0x20b;
  const sections = readSections(source, optionalHeader + optionalBytes, source.u16(header + 6));
  const imageBase = wide
    ? Number(source.view(optionalHeader + 24, 8).getBigUint64(0, true))
    : source.u32(optionalHeader + 28);
  const image = { source, sections, imageBase };
  const directories = optionalHeader + (wide ? 112 : 96);
  const directoryCount = source.u32(directories - 4);
  const directory = (index: number) => (index < directoryCount ? source.u32(directories + index * 8) : 0);
  const imports = { address: directory(IMPORT_DIRECTORY), entryBytes: 20, nameAt: 12, optional: false };
  const delayed = { address: directory(DELAY_IMPORT_DIRECTORY), entryBytes: 32, nameAt: 4, optional: true };
  return {
    ...bareInfo(source, "pe", machineNames[machine] ?? `machine-${machine}`, wide ? 64 : 32),
    needed: [...readImports(image, imports), ...readImports(image, delayed)],
    dynamic: true,
  };
}
