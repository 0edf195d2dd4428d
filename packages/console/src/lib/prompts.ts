const KEY = "model-gateway.video-prompts";
const KEPT_MAX = 100;
const LENGTH_MAX = 200;

function stored(): [string, string][] {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]") as [string, string][];
  } catch {
    return [];
  }
}

/** Prompts by job: the service does not return them, and a gallery without them is hard to read. */
export function rememberPrompt(jobId: string, prompt: string): void {
  const list = [...stored(), [jobId, prompt.slice(0, LENGTH_MAX)]].slice(-KEPT_MAX);
  localStorage.setItem(KEY, JSON.stringify(list));
}

export const promptOf = (jobId: string): string | null => stored().find(([id]) => id === jobId)?.[1] ?? null;
