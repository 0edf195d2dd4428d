import { createCloudVideo } from "../cloud-video/index.ts";
import { videos } from "../cloud-video/videos.ts";
import {
  type BackendConfig,
  type BackendDeps,
  BackendError,
  isUnsent,
  type VideoCapability,
} from "../contract.ts";

/** Between the node's name and its own id of the task. */
const SEPARATOR = "|";

export interface ClipMaker {
  video: VideoCapability;
}

/** Videos of one engine. */
export const clipsAt = (config: BackendConfig, deps: BackendDeps): VideoCapability =>
  createCloudVideo({ ...config, dialect: videos.name }, deps).video!;

interface Nodes extends Pick<VideoCapability, "asked"> {
  submit(...task: Parameters<VideoCapability["submit"]>): Promise<{ node: string; id: string }>;
  /** The ways to a node, the best first; none: it is away. */
  waysTo(node: string): readonly ClipMaker[];
}

/** Videos of a model: a task stays on the node that took it. */
export function clipsOf({ asked, submit, waysTo }: Nodes): VideoCapability {
  async function of<T>(taskId: string, ask: (at: VideoCapability, id: string) => Promise<T>): Promise<T> {
    const end = taskId.indexOf(SEPARATOR);
    let failure = new BackendError("gone", "the node that has this task is away");
    for (const { video } of waysTo(taskId.slice(0, end))) {
      try {
        return await ask(video, taskId.slice(end + 1));
      } catch (error) {
        if (!isUnsent(error)) throw error;
        failure = error;
      }
    }
    throw failure;
  }
  return {
    asked,
    async submit(...task) {
      const { node, id } = await submit(...task);
      return node + SEPARATOR + id;
    },
    poll: (taskId, signal) => of(taskId, (at, id) => at.poll(id, signal)),
    content: (taskId, range, signal) => of(taskId, (at, id) => at.content!(id, range, signal)),
    cancel: (taskId, signal) => of(taskId, (at, id) => at.cancel!(id, signal)),
  };
}
