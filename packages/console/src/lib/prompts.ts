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

/** What was asked for, by job: the service does not tell it again, and a gallery without it says little. */
export function rememberPrompt(jobId: string, prompt: string): void {
  const list = [...stored(), [jobId, prompt.slice(0, LENGTH_MAX)]].slice(-KEPT_MAX);
  localStorage.setItem(KEY, JSON.stringify(list));
}

export const promptOf = (jobId: string): string | null => stored().find(([id]) => id === jobId)?.[1] ?? null;
