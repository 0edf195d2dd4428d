import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { count, points } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Code } from "../../ui/code.tsx";
import { Button, TextField } from "../../ui/controls.tsx";
import { Confirm, Dialog, FormDialog } from "../../ui/dialogs.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded, Note, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

type Batch = Result<"codes.list">[number];

/** Points to hand out. */
export function Codes() {
  const batches = useQuery("codes", () => api("codes.list"));
  const [making, setMaking] = useState(false);
  const [ending, setEnding] = useState<Batch | null>(null);
  const columns: Column<Batch>[] = [
    { id: "note", label: "Note", cell: ({ note }) => note ?? <span className="muted">none</span> },
    { id: "points", label: "Points each", numeric: true, cell: (batch) => points(batch.points) },
    {
      id: "used",
      label: "Redeemed",
      numeric: true,
      cell: ({ redeemed, codes }) => `${count(redeemed)} of ${count(codes)}`,
    },
    { id: "by", label: "Made by", wide: true, cell: ({ created_by }) => created_by },
    { id: "ends", label: "Expires", wide: true, cell: ({ expires_at }) => <When time={expires_at} /> },
    {
      id: "revoke",
      label: "",
      numeric: true,
      cell: (batch) =>
        batch.redeemed < batch.codes && (
          <Button small look="quiet" onClick={() => setEnding(batch)}>
            Revoke
          </Button>
        ),
    },
  ];
  return (
    <Section
      title="Redemption codes"
      actions={
        <Button icon="plus" onClick={() => setMaking(true)}>
          Create codes
        </Button>
      }
    >
      <Loaded query={batches}>
        {(list) =>
          list.length === 0 ? (
            <p className="muted">No codes yet. Each gives points once, to whoever redeems it under Wallet.</p>
          ) : (
            <Table label="Redemption codes" columns={columns} rows={list} rowKey={({ id }) => id} />
          )
        }
      </Loaded>
      {making && <CreateCodes onClose={() => setMaking(false)} />}
      {ending && (
        <Confirm
          title="Revoke these codes?"
          consequence={`${count(ending.codes - ending.redeemed)} codes that nobody redeemed stop working now.`}
          confirm="Revoke"
          onClose={() => setEnding(null)}
          onConfirm={async () => {
            await api("codes.revoke", { id: ending.id });
            invalidate("codes");
            toast("The codes are revoked");
          }}
        />
      )}
    </Section>
  );
}

function CreateCodes({ onClose }: { onClose(): void }) {
  const [number, setNumber] = useState("10");
  const [amount, setAmount] = useState("100");
  const [days, setDays] = useState("90");
  const [note, setNote] = useState("");
  const [codes, setCodes] = useState<readonly string[] | null>(null);
  if (codes)
    return (
      <Dialog title="The codes" closing="when copied" onClose={onClose}>
        <div className="stack">
          <Code label="Codes" text={codes.join("\n")} />
          <Note tone="warn">Copy them now: they are not shown again. Each works once.</Note>
        </div>
      </Dialog>
    );
  const create = async () => {
    const made = await api("codes.create", {
      count: Number(number),
      points: Number(amount),
      ttl_secs: Number(days) * 86_400,
      ...(note && { note }),
    });
    setCodes(made.codes);
    invalidate("codes");
  };
  return (
    <FormDialog
      title="Create redemption codes"
      submit="Create codes"
      onSubmit={create}
      onDone={() => {}}
      onClose={onClose}
    >
      <div className="columns">
        <TextField
          label="Codes"
          type="number"
          min={1}
          max={500}
          value={number}
          onChange={setNumber}
          required
        />
        <TextField label="Points each" type="number" min={1} value={amount} onChange={setAmount} required />
        <TextField
          label="Valid for days"
          type="number"
          min={1}
          max={1095}
          value={days}
          onChange={setDays}
          required
        />
      </div>
      <TextField
        label="Note"
        value={note}
        onChange={setNote}
        maxLength={200}
        hint="Shown in the ledger of those who redeem them"
      />
    </FormDialog>
  );
}
