import { exactTime, points } from "../../lib/format.ts";
import { Copyable, LinkButton } from "../../ui/controls.tsx";
import { Dialog } from "../../ui/dialogs.tsx";
import { TokenFacts } from "../../ui/token-facts.tsx";
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
          <TokenFacts used={row} costUsd={row.cost} />
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
