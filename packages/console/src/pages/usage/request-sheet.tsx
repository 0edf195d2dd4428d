import { count, exactTime, money, points } from "../../lib/format.ts";
import { Copyable, LinkButton } from "../../ui/controls.tsx";
import { Dialog } from "../../ui/dialogs.tsx";
import type { UsageRow } from "./data.ts";

/** Everything that is known of one request. */
export function RequestSheet({ row, onClose }: { row: UsageRow; onClose(): void }) {
  return (
    <Dialog title={row.model} kind="sheet" onClose={onClose}>
      <div className="stack">
        <dl className="facts">
          <dt>Finished</dt>
          <dd>{exactTime(row.created_at)}</dd>
          <dt>Source</dt>
          <dd>{row.backend}</dd>
          <dt>Tokens in</dt>
          <dd>{count(row.prompt_tokens)}</dd>
          <dt>Tokens out</dt>
          <dd>{count(row.completion_tokens)}</dd>
          <dt>Cost</dt>
          <dd>{row.cost === null ? "unpriced: no price is known for this model" : money(row.cost)}</dd>
          <dt>Reference</dt>
          <dd>
            {row.ref_id ?? <span className="muted">none; send the header x-service-ref to set one</span>}
          </dd>
          <dt>Made with</dt>
          <dd>
            {row.api_key_id.startsWith("jwt-") ? (
              "the console or a signed-in program"
            ) : (
              <code>service-{row.api_key_id}…</code>
            )}
          </dd>
          {row.project && (
            <>
              <dt>Project</dt>
              <dd>{row.project}</dd>
            </>
          )}
          {row.points !== undefined && (
            <>
              <dt>Paid by</dt>
              <dd>
                {row.points === null
                  ? "the tier's monthly quota"
                  : `${points(row.points)} from ${row.account_type === "group" ? "the group's pool" : "your wallet"}`}
              </dd>
            </>
          )}
          {row.estimated && (
            <>
              <dt>Tokens</dt>
              <dd>estimated: the upstream reported none</dd>
            </>
          )}
          <dt>Id</dt>
          <dd>
            <Copyable text={row.id} />
          </dd>
        </dl>
        <div className="row wrap">
          <LinkButton href={`/playground?model=${encodeURIComponent(row.model)}`} icon="playground">
            Try this model
          </LinkButton>
          <LinkButton href={`/usage?model=${encodeURIComponent(row.model)}`} icon="usage">
            All of this model
          </LinkButton>
        </div>
      </div>
    </Dialog>
  );
}
