import { useEffect, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { money } from "../../lib/format.ts";
import { promptOf } from "../../lib/prompts.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import type { VideoJob } from "../../lib/records.ts";
import { toastError } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { Icon } from "../../ui/icons.tsx";
import { PageHead } from "../../ui/page.tsx";
import { Empty, FormError, Loaded, Meter, Status, type Tone, When } from "../../ui/states.tsx";
import { CreateVideo } from "./create.tsx";

const SHOWN = 60;
const TONES: Record<VideoJob["status"], Tone> = {
  queued: "plain",
  running: "plain",
  done: "good",
  failed: "bad",
  cancelled: "warn",
};
const isOver = (status: string) => status === "done" || status === "failed" || status === "cancelled";

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
function useJob(job: VideoJob): VideoJob {
  const [news, setNews] = useState<Partial<VideoJob>>({});
  useEffect(() => {
    if (isOver(job.status)) return;
    const aborter = new AbortController();
    const follow = async () => {
      const onReconnect = () => invalidate("videos");
      for await (const { method, params } of client.events(job.id, { signal: aborter.signal, onReconnect })) {
        if (method === "video.progress")
          setNews({ status: params.status as VideoJob["status"], progress: params.progress });
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

/** A cancelled film is paid for, too, unless it is known that it was not made. */
const costInWords = ({ status, cost }: VideoJob) =>
  status === "done" || cost > 0 ? money(cost) : isOver(status) ? "not charged" : "";

function VideoCard({ job: listed }: { job: VideoJob }) {
  const job = useJob(listed);
  const [busy, setBusy] = useState(false);
  const cancel = async () => {
    setBusy(true);
    await api("video.cancel", { job_id: job.id }).catch(toastError);
    invalidate("videos");
    setBusy(false);
  };
  const share = job.progress / 100;
  const prompt = promptOf(job.id);
  return (
    <li>
      <Preview job={job} />
      <div className="stack tight">
        <strong className="ellipsis" title={prompt ?? job.model}>
          {prompt ?? job.model}
        </strong>
        <div className="row between">
          <Status tone={TONES[job.status]} icon={isOver(job.status) ? undefined : "waiting"}>
            {job.status}
            {job.status === "running" && share > 0 && `, ${Math.round(share * 100)}%`}
          </Status>
          <span className="muted small">{costInWords(job)}</span>
        </div>
        {!isOver(job.status) && <Meter share={share} label="Progress" busy={share === 0} />}
        {job.error && (
          <p className="bad small" role="alert">
            {job.error}
          </p>
        )}
        <div className="row between">
          <span className="muted small ellipsis">
            {prompt && `${job.model}, `}
            <When time={job.created_at * 1000} />
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

/** Nothing is asked of the film's own host before someone presses play. */
function Preview({ job: { id, result, status } }: { job: VideoJob }) {
  const [clip, setClip] = useState<string | null>(null);
  useEffect(() => () => void (clip && URL.revokeObjectURL(clip)), [clip]);
  const play = useAction(async () => setClip(URL.createObjectURL(await client.videoClip(id))));
  if (result?.url.startsWith("/") && clip === null) {
    return (
      <div className="preview">
        <Button icon="video" busy={play.busy} onClick={() => void play.run()}>
          Play
        </Button>
        <FormError error={play.error} />
      </div>
    );
  }
  if (!result) {
    return (
      <div className="preview">
        <Icon name={status === "failed" ? "error" : "video"} />
      </div>
    );
  }
  return (
    <>
      {/* biome-ignore lint/a11y/useMediaCaption: generated films have no captions */}
      <video className="preview" src={clip ?? result.url} controls autoPlay={clip !== null} preload="none" />
      {clip ? (
        <a className="small" href={clip} download={id}>
          Download
        </a>
      ) : (
        <a className="small" href={result.url} target="_blank" rel="noreferrer">
          Open at {new URL(result.url, location.href).host}
        </a>
      )}
    </>
  );
}
