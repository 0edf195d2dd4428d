import { useState } from "react";
import { api } from "../../lib/api.ts";
import { useQuery } from "../../lib/query.ts";
import type { VideoPrice } from "../../lib/records.ts";
import { Button } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { Empty, Loaded, Status } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { VideoPriceForm, videoPriceInWords } from "./video-price.tsx";

const columns: Column<VideoPrice>[] = [
  {
    id: "model",
    label: "Model",
    sort: ({ model }) => model,
    cell: ({ model }) => <span className="mono">{model}</span>,
  },
  { id: "price", label: "Price", cell: videoPriceInWords },
  {
    id: "resolution",
    label: "Resolution factors",
    wide: true,
    cell: ({ resolution_coeff }) =>
      Object.entries(resolution_coeff)
        .map(([side, factor]) => `${side === "*" ? "others" : `${side}p`} × ${factor}`)
        .join(", "),
  },
  {
    id: "state",
    label: "State",
    cell: ({ enabled }) =>
      enabled ? <Status tone="good">Priced</Status> : <Status tone="plain">Off</Status>,
  },
];

export function Prices() {
  const pricing = useQuery("video pricing", () => api("billing.video.pricing.get"));
  const [editing, setEditing] = useState<VideoPrice | "new" | null>(null);
  return (
    <div className="stack loose">
      <Section
        title="Video prices"
        actions={
          <Button icon="plus" onClick={() => setEditing("new")}>
            Set a price
          </Button>
        }
      >
        <Loaded query={pricing}>
          {({ pricing: rows }) =>
            rows.length === 0 ? (
              <Empty icon="video" title="No video model has its own price">
                Until one is set, a second of video costs $0.005 at every resolution.
              </Empty>
            ) : (
              <Table
                label="Video prices"
                columns={columns}
                rows={rows}
                rowKey={({ model }) => model}
                onOpen={(row) => setEditing(row)}
              />
            )
          }
        </Loaded>
      </Section>
      {editing !== null && (
        <VideoPriceForm price={editing === "new" ? null : editing} onClose={() => setEditing(null)} />
      )}
    </div>
  );
}
