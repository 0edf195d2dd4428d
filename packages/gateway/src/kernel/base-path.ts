/** The path of `SERVICE_PUBLIC_URL` without its last slash; empty where the service has a host to itself. */
export const basePathOf = (publicUrl: string | null): string =>
  publicUrl === null ? "" : new URL(publicUrl).pathname.replace(/\/+$/, "");

/** The path as routes know it. A proxy may have removed the prefix already, so it is not required. */
export const withoutBase = (path: string, basePath: string): string =>
  basePath !== "" && path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : path;
