export { type BinaryInfo, detectFormat, readBinary } from "./binary.ts";
export { type Embed, type EmbedOptions, embedLibraries } from "./embed.ts";
export { type EmbeddedLibrary, embeddedLibraries } from "./embedded.ts";
export { type BundleEntry, readBundleEntries, type TargetOs } from "./manifest.ts";
export { formatBytes, renderBundleReport, renderScan } from "./render.ts";
export {
  type BundleDependency,
  type BundledLibrary,
  type BundleOptions,
  type BundleReport,
  bundledLibraryEnv,
  bundleLibraries,
} from "./report.ts";
export { type DependencyScan, type ScanOptions, scanDependencies } from "./scan.ts";
export { type UnpackOptions, unpackLibraries } from "./unpack.ts";
export type { Dependency } from "./walk.ts";
