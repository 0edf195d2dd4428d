import { spawnSync } from "node:child_process";
import { closeSync, ftruncateSync, mkdirSync, openSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";

const PIECE = new Uint8Array(1024 * 1024);

/** A small disk of its own in memory, which can be filled. Mounting needs root; without it there is none. */
export class Disk {
  private constructor(readonly path: string) {}

  static mount(path: string, megabytes: number): Disk | null {
    mkdirSync(path, { recursive: true });
    const options = ["-t", "tmpfs", "-o", `size=${megabytes}m,mode=0700`, "tmpfs", path];
    return spawnSync("mount", options).status === 0 ? new Disk(path) : null;
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.path);
    return bavail * bsize;
  }

  get #ballast(): string {
    return join(this.path, "ballast");
  }

  /** To the last byte. */
  fill(): void {
    const file = openSync(this.#ballast, "a");
    try {
      for (let length = PIECE.length; length >= 1; length = Math.floor(length / 2)) {
        try {
          while (writeSync(file, PIECE, 0, length) === length);
        } catch {
          // No room for a piece of this length.
        }
      }
    } finally {
      closeSync(file);
    }
  }

  free(): void {
    // Truncated first: removing a file of a full disk can itself need room.
    const file = openSync(this.#ballast, "a");
    ftruncateSync(file, 0);
    closeSync(file);
    rmSync(this.#ballast);
  }

  unmount(): void {
    spawnSync("umount", ["-l", this.path]);
  }
}
