/** Why a WebSocket did not open. The runtime's message begins with the URL, which may contain credentials. */
export const socketFailure = (message: string): string =>
  message.replace(/^WebSocket connection to '.*' failed: /s, "");
