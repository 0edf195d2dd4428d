import type { ReactNode } from "react";
import { type Column, classOf } from "./table.tsx";

const WIDTHS = ["62%", "84%", "48%", "73%", "56%", "90%"];

function Bar({ width, height }: { width?: number | string; height?: number }) {
  return <span className="skeleton" style={{ width, height }} />;
}

/** What is loading, said once for those who cannot see the outline. */
function Outline({ children, className = "stack" }: { children: ReactNode; className?: string }) {
  return (
    <div className={className} role="status" aria-label="Loading">
      {children}
    </div>
  );
}

/** Lines of text. */
export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <Outline>
      {Array.from({ length: lines }, (_, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <Bar key={line} width={WIDTHS[line % WIDTHS.length]} />
      ))}
    </Outline>
  );
}

/** A page whose own file is still on its way. */
export function PageSkeleton() {
  return (
    <Outline className="stack loose">
      <div className="stack tight">
        <Bar width={180} height={28} />
        <Bar width="min(460px, 90%)" />
      </div>
      <BlockSkeleton height={260} />
    </Outline>
  );
}

/** A plot, a picture or a card of this height. */
export function BlockSkeleton({ height }: { height: number }) {
  return (
    <Outline>
      <span className="skeleton block" style={{ height }} />
    </Outline>
  );
}

/** A table with its real head, so that nothing moves when the rows come. */
export function TableSkeleton({
  columns,
  rows = 5,
}: {
  columns: readonly Pick<Column<never>, "id" | "label" | "numeric" | "wide">[];
  rows?: number;
}) {
  return (
    <Outline className="table-wrap">
      <table className="table">
        <thead>
          <tr>
            {columns.map(({ id, label, numeric, wide }) => (
              <th key={id} className={classOf({ numeric, wide, label })}>
                {label || <span className="visually-hidden">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: rows }, (_, row) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: the rows are all alike
            <tr key={row}>
              {columns.map(({ id, wide, label }, i) => (
                <td key={id} className={classOf({ wide, label })}>
                  <Bar width={WIDTHS[(row + i) % WIDTHS.length]} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Outline>
  );
}

/** Large figures side by side. */
export function FiguresSkeleton({ names }: { names: readonly string[] }) {
  return (
    <Outline className="figures">
      {names.map((name) => (
        <div key={name} className="figure">
          <span className="name">{name}</span>
          <span className="value">
            <Bar width="70%" height={24} />
          </span>
          <span className="note-line">
            <Bar width="50%" />
          </span>
        </div>
      ))}
    </Outline>
  );
}
