import type { Migration } from "../migrate.ts";

/** What a job asks for and may cost at most, so that another instance can hold it and settle it. */
export const videoBounds: Migration = {
  id: 11,
  name: "bounds of video jobs",
  statements: [
    "ALTER TABLE video_jobs ADD COLUMN facts TEXT",
    "ALTER TABLE video_jobs ADD COLUMN bound_usd {double}",
  ],
};
