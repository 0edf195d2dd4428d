import { useEffect, useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { money } from "../../lib/format.ts";
import type { RpcVideoJob } from "../../lib/planned.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toastError } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { Icon } from "../../ui/icons.tsx";
import { PageHead } from "../../ui/page.tsx";
import { Empty, Loaded, Meter, Status, type Tone, When } from "../../ui/states.tsx";
import { CreateVideo } from "./create.tsx";

const SHOWN = 60;
const TONES: Record<RpcVideoJob["status"], Tone> = {
  queued: "plain",
  running: "plain",
  done: "good",
  failed: "bad",
  cancelled: "warn",
};
const isOver = (status: string) => status === "done" || status === "failed" || status === "cancelled";
const createdMs = (time: number | string) => (typeof time === "number" ? time * 1000 : Date.parse(time));

export function Page() {
  const jobs = useQuery("videos", () => api("video.list", { limit: SHOWN }));
  const [creating, setCreating] = useState(false);
  const create = (
    <Button look="primary" icon="plus" onClick={() => setCreating(true)}>
      New video
    </Button>
  );
  return (
    <>
      <PageHead title="Video" actions={create}>
        Videos are made in the background; this page follows them as they come along.
      </PageHead>
      <Loaded query={jobs}>
        {({ jobs: list }) =>
          list.length === 0 ? (
            <Empty icon="video" title="No videos yet" action={create}>
              Describe a scene and choose a video model. The job keeps running when you leave this page.
            </Empty>
          ) : (
            <ul className="gallery">
              {list.map((job) => (
                <VideoCard key={job.id} job={job} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {creating && <CreateVideo onClose={() => setCreating(false)} />}
    </>
  );
}

/** The job's latest state: as listed, then as its notifications tell. */
function useJob(job: RpcVideoJob): RpcVideoJob {
  const [news, setNews] = useState<Partial<RpcVideoJob>>({});
  useEffect(() => {
    if (isOver(job.status)) return;
    const aborter = new AbortController();
    const follow = async () => {
      const onReconnect = () => invalidate("videos");
      for await (const { method, params } of client.events(job.id, { signal: aborter.signal, onReconnect })) {
        if (method === "video.progress")
          setNews({ status: params.status as RpcVideoJob["status"], progress: params.progress });
        if (method === "video.done" || method === "video.failed") {
          invalidate("videos");
          return;
        }
      }
    };
    follow().catch(toastError);
    return () => aborter.abort();
  }, [job.id, job.status]);
  return isOver(job.status) ? job : { ...job, ...news };
}

function VideoCard({ job: listed }: { job: RpcVideoJob }) {
  const job = useJob(listed);
  const [busy, setBusy] = useState(false);
  const cancel = async () => {
    setBusy(true);
    await api("video.cancel", { job_id: job.id }).catch(toastError);
    invalidate("videos");
    setBusy(false);
  };
  // A progress of 0 to 1 and one of 0 to 100 both occur among upstreams.
  const share = job.progress > 1 ? job.progress / 100 : job.progress;
  return (
    <li>
      <Preview job={job} />
      <div className="stack tight">
        <p className="clamp-2">{job.prompt ?? job.model}</p>
        <div className="row between">
          <Status tone={TONES[job.status]} icon={isOver(job.status) ? undefined : "waiting"}>
            {job.status}
            {job.status === "running" && `, ${Math.round(share * 100)}%`}
          </Status>
          <span className="muted small">{job.cost == null ? "" : money(job.cost)}</span>
        </div>
        {!isOver(job.status) && <Meter share={share} label="Progress" busy={job.status === "queued"} />}
        {job.error && <p className="bad small">{job.error}</p>}
        <div className="row between">
          <span className="muted small ellipsis">
            {job.model}, <When time={createdMs(job.created_at)} />
          </span>
          {!isOver(job.status) && (
            <Button small busy={busy} onClick={() => void cancel()}>
              Cancel
            </Button>
          )}
        </div>
      </div>
    </li>
  );
}

/** Films of this very service play here; others open at their own host, which is asked only on a click. */
function Preview({ job: { result, status } }: { job: RpcVideoJob }) {
  if (!result) {
    return (
      <div className="preview">
        <Icon name={status === "failed" ? "error" : "video"} />
      </div>
    );
  }
  const own = new URL(result.url, location.href).origin === location.origin;
  if (own)
    return (
      // biome-ignore lint/a11y/useMediaCaption: generated films have no captions
      <video className="preview" src={result.url} controls preload="metadata" />
    );
  return (
    <a className="preview" href={result.url} target="_blank" rel="noreferrer">
      <Icon name="play" />
      <span>Open at {new URL(result.url).host}</span>
    </a>
  );
}
