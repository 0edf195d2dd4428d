const PROBE_TIMEOUT_MS = 2_000;

export function portAnswers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), PROBE_TIMEOUT_MS);
    const settle = (answers: boolean) => {
      clearTimeout(timer);
      resolve(answers);
    };
    Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        open(socket) {
          settle(true);
          socket.end();
        },
        connectError: () => settle(false),
        data() {},
      },
    }).catch(() => settle(false));
  });
}
