import type { Migration } from "../migrate.ts";

export const video: Migration = {
  id: 7,
  name: "video jobs",
  statements: [
    `CREATE TABLE video_jobs (
      id {uuid} PRIMARY KEY,
      user_id {uuid} NOT NULL REFERENCES users (id) ON DELETE CASCADE,
      payer TEXT NOT NULL,
      model TEXT NOT NULL,
      backend TEXT NOT NULL,
      request TEXT NOT NULL,
      status TEXT NOT NULL,
      progress {double} NOT NULL,
      task_id TEXT,
      result TEXT,
      error TEXT,
      cost {double} NOT NULL,
      settled {boolean} NOT NULL,
      ref_id TEXT,
      stream_id {uuid} NOT NULL,
      created_at {timestamp} NOT NULL,
      deadline_at {timestamp} NOT NULL,
      next_step_at {timestamp} NOT NULL,
      step_count {bigint} NOT NULL,
      lease_owner TEXT,
      lease_until {timestamp}
    )`,
    "CREATE INDEX video_jobs_user ON video_jobs (user_id, created_at)",
    "CREATE INDEX video_jobs_due ON video_jobs (settled, next_step_at)",
  ],
};
