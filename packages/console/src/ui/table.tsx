import {
  type KeyboardEvent,
  memo,
  type ReactNode,
  startTransition,
  useCallback,
  useDeferredValue,
  useEffect,
  useRef,
  useState,
} from "react";
import { Button } from "./controls.tsx";
import { Icon } from "./icons.tsx";

export interface Column<T> {
  id: string;
  label: string;
  numeric?: boolean;
  cell(row: T): ReactNode;
  /** Left out on phones, where the row opens what has it all. */
  wide?: boolean;
  /** Makes the column sortable. */
  sort?(row: T): string | number;
}

interface TableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowKey(row: T): string;
  onOpen?(row: T): void;
  dim?(row: T): boolean;
  /** What rows are searched by; a long list then has a search field. */
  words?(row: T): string;
}

/** So many rows and more get a search field. */
const SEARCHED_FROM = 10;
/** So many rows and more are drawn only where they are in sight, and some around. */
const DRAWN_ALL = 150;
const AROUND = 15;
const ROW_PX = 37;

/** Which rows of a long list are in sight. */
function useInSight(count: number) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [range, setRange] = useState({ from: 0, to: 2 * AROUND });
  useEffect(() => {
    if (count <= DRAWN_ALL) return;
    const look = () => {
      const above = -(body.current?.getBoundingClientRect().top ?? 0);
      const near = (px: number) => Math.floor(px / ROW_PX / AROUND) * AROUND;
      const from = Math.max(0, Math.min(near(above) - AROUND, count - AROUND));
      const to = near(above + innerHeight) + 2 * AROUND;
      setRange((now) => (now.from === from && now.to === to ? now : { from, to }));
    };
    look();
    // Captured: whatever it is that scrolls.
    addEventListener("scroll", look, { capture: true, passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look, { capture: true });
      removeEventListener("resize", look);
    };
  }, [count]);
  return { body, ...(count > DRAWN_ALL ? range : { from: 0, to: count }) };
}

const Gap = ({ rows }: { rows: number }) => rows > 0 && <tr style={{ height: rows * ROW_PX }} />;

export const classOf = ({ numeric, wide, label }: Pick<Column<never>, "numeric" | "wide" | "label">) =>
  [numeric && "num", wide && "wide", label === "" && "actions"].filter(Boolean).join(" ") || undefined;

/** A dense table: sticky header, columns that sort, rows that open. */
export function Table<T>({ label, columns, rows: all, rowKey, onOpen, dim, words }: TableProps<T>) {
  const [order, setOrder] = useState<{ id: string; descending: boolean } | null>(null);
  const [search, setSearch] = useState("");
  // Of a long list the letter that was typed is seen before the rows that it leaves.
  const wanted = useDeferredValue(search).trim().toLowerCase();
  const rows = words && wanted ? all.filter((row) => words(row).toLowerCase().includes(wanted)) : all;
  const { body, from, to } = useInSight(rows.length);
  const by = columns.find(({ id }) => id === order?.id)?.sort;
  const sorted = by
    ? [...rows].sort((a, b) => {
        const [x, y] = [by(a), by(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (order?.descending ? -1 : 1);
      })
    : rows;
  const toggle = ({ id, numeric }: Column<T>) =>
    startTransition(() =>
      setOrder((now) =>
        now?.id === id ? { id, descending: !now.descending } : { id, descending: Boolean(numeric) },
      ),
    );
  // The same for all time, or every row would be drawn again to open one.
  const latest = useRef(onOpen);
  latest.current = onOpen;
  const open = useCallback((row: T) => latest.current?.(row), []);
  const table = (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section className="table-wrap" aria-label={label} tabIndex={0}>
      <table className="table" aria-rowcount={rows.length > DRAWN_ALL ? rows.length + 1 : undefined}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.id}
                className={classOf(column)}
                aria-sort={
                  order?.id === column.id ? (order.descending ? "descending" : "ascending") : undefined
                }
              >
                {column.sort ? (
                  <button type="button" onClick={() => toggle(column)}>
                    {column.label}
                    {order?.id === column.id && <Icon name={order.descending ? "down" : "up"} />}
                  </button>
                ) : (
                  column.label || <span className="visually-hidden">Actions</span>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          <Gap rows={from} />
          {sorted.slice(from, to).map((row) => (
            <Row key={rowKey(row)} row={row} columns={columns} onOpen={onOpen && open} dim={dim?.(row)} />
          ))}
          <Gap rows={rows.length - to} />
        </tbody>
      </table>
    </section>
  );
  if (!words || all.length < SEARCHED_FROM) return table;
  return (
    <div className="stack">
      <input
        className="input"
        type="search"
        aria-label={`Search ${label.toLowerCase()}`}
        placeholder="Search"
        value={search}
        onChange={(event) => setSearch(event.target.value)}
      />
      {table}
      {rows.length === 0 && <p className="muted">Nothing matches “{search}”.</p>}
    </div>
  );
}

/** Drawn again only when it changed, not at every letter of the search. */
const Row = memo(PlainRow) as typeof PlainRow;

function PlainRow<T>({
  row,
  columns,
  onOpen,
  dim,
}: {
  row: T;
  columns: readonly Column<T>[];
  onOpen?(row: T): void;
  dim?: boolean;
}) {
  const opening = onOpen && {
    tabIndex: 0,
    onClick: () => onOpen(row),
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key !== "Enter" || event.target !== event.currentTarget) return;
      // Or the same key press would also press the button that what opens has the focus on: its Close.
      event.preventDefault();
      onOpen(row);
    },
  };
  return (
    <tr className={[onOpen && "opens", dim && "dim"].filter(Boolean).join(" ") || undefined} {...opening}>
      {columns.map((column) => (
        <td key={column.id} className={classOf(column)}>
          {column.cell(row)}
        </td>
      ))}
    </tr>
  );
}

interface PagedTableProps<T> extends TableProps<T> {
  /** Adds the next page of older rows; absent: there are no more. */
  onMore?(): Promise<void>;
}

/** A table whose rows come newest first, a page at a time. */
export function PagedTable<T>({ onMore, ...table }: PagedTableProps<T>) {
  const [busy, setBusy] = useState(false);
  return (
    <div className="stack">
      <Table {...table} />
      {onMore && (
        <div>
          <Button
            busy={busy}
            onClick={() => {
              setBusy(true);
              void onMore().finally(() => setBusy(false));
            }}
          >
            Show older ones
          </Button>
        </div>
      )}
    </div>
  );
}
