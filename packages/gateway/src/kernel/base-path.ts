/** The path of `SERVICE_PUBLIC_URL` without its last slash; empty if the service has a host to itself. */
export const basePathOf = (publicUrl: string | null): string =>
  publicUrl === null ? "" : new URL(publicUrl).pathname.replace(/\/+$/, "");

/** The path without the prefix, which a proxy may have removed already. */
export const withoutBase = (path: string, basePath: string): string =>
  basePath !== "" && path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : path;
