import { useState } from "react";
import { downloadText, toCsv } from "../lib/download.ts";
import { count } from "../lib/format.ts";
import { toast } from "../lib/toast.ts";
import { Button } from "./controls.tsx";
import { explain } from "./states.tsx";

/** Up to what a spreadsheet is for. */
const ROWS_MAX = 10_000;
const PAGE_ROWS = 500;

interface RowsPage {
  records: readonly object[];
  next_cursor: string | null;
}

/** Saves the rows that `list` gives page by page, the newest first. */
export function ExportButton({
  name,
  columns,
  list,
  disabled,
}: {
  name: string;
  columns: readonly string[];
  list(page: { cursor: string | undefined; limit: number }): Promise<RowsPage>;
  disabled?: boolean;
}) {
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    const rows: object[] = [];
    let cursor: string | undefined;
    do {
      const page = await list({ cursor, limit: PAGE_ROWS });
      rows.push(...page.records);
      cursor = page.next_cursor ?? undefined;
    } while (cursor && rows.length < ROWS_MAX);
    downloadText(name, toCsv(columns, rows.slice(0, ROWS_MAX) as Record<string, unknown>[]));
    if (cursor || rows.length > ROWS_MAX)
      toast(`The file has the newest ${count(ROWS_MAX)} requests; choose a shorter period for the rest`);
  };
  return (
    <Button
      icon="download"
      busy={busy}
      disabled={disabled}
      onClick={() =>
        void save()
          .catch((error) => toast(explain(error).title, "bad"))
          .finally(() => setBusy(false))
      }
    >
      CSV
    </Button>
  );
}
