/** Outlines on a 24-unit grid, drawn for this console. */
const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  playground: "M4 5h16v11H9l-5 4zM8.5 9.5h7M8.5 12.5h4",
  usage: "M4 20V4M4 20h16M8 16v-4M12 16V8M16 16v-6",
  requests: "M4 6h9M4 12h16M9 18h7M17 6h3M4 18h1",
  batches: "M12 4l8 4-8 4-8-4zM4 12l8 4 8-4M4 16l8 4 8-4",
  keys: "M14.5 9.5a4.5 4.5 0 1 0-4 4.47L12 15.5h2V17h2v2h4v-3.5l-5.9-5.2",
  groups:
    "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20c.5-3.6 3-5.5 6.5-5.5s6 1.9 6.5 5.5M16 4.5a3.5 3.5 0 0 1 0 6.3M18 14.8c2 .7 3.2 2.5 3.5 5.2",
  backends: "M4 5h16v5H4zM4 14h16v5H4zM8 7.5h.01M8 16.5h.01",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  wallet: "M4 7h16v12H4zM4 7l12-3v3M14.5 12H20v3h-5.5z",
  nodes: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  video: "M3 6h12v12H3zM15 10.5l6-3.5v10l-6-3.5",
  voice: "M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3zM5.5 11a6.5 6.5 0 0 0 13 0M12 17.5V21",
  conversations: "M3 5h13v9H8l-5 4zM19 9h2v11l-4-3h-7v-1",
  memory:
    "M9 4a3 3 0 0 0-3 3 3 3 0 0 0-2 5 3 3 0 0 0 2 5 3 3 0 0 0 6 1V6a2.5 2.5 0 0 0-3-2zM12 6a2.5 2.5 0 0 1 3-2 3 3 0 0 1 3 3 3 3 0 0 1 2 5 3 3 0 0 1-2 5 3 3 0 0 1-6 1",
  settings:
    "M4 7h9M17 7h3M4 17h3M11 17h9M15 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM9 19.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  docs: "M5 4h10l4 4v12H5zM14.5 4v4.5H19M8.5 13h7M8.5 16.5h5",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  check: "M5 12.5l4.5 4.5L19 7.5",
  ok: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM8 12.2l2.8 2.8L16 9.6",
  warning: "M12 4l9 16H3zM12 10v4.5M12 17.2h.01",
  error: "M8.3 3h7.4L21 8.3v7.4L15.7 21H8.3L3 15.7V8.3zM9 9l6 6M15 9l-6 6",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8h.01",
  waiting: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7.5V12l3 2",
  close: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16.2 16.2L21 21",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M18.7 5.3l-1.4 1.4M6.7 17.3l-1.4 1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20.5c.8-4 3.6-6 7.5-6s6.7 2 7.5 6",
  leave: "M14 4h6v16h-6M4 12h11M8 8l-4 4 4 4",
  send: "M4 12l16-8-5 16-3.5-6.5zM11.5 13.5L20 4",
  stop: "M7 7h10v10H7z",
  play: "M8 5l11 7-11 7z",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9.5h.01",
  code: "M8 7l-5 5 5 5M16 7l5 5-5 5M13.5 5l-3 14",
  columns: "M4 5h16v14H4zM12 5v14",
  download: "M12 4v11M7.5 11l4.5 4.5 4.5-4.5M4 20h16",
  refresh: "M20 11a8 8 0 0 0-14.3-4L4 9M4 4v5h5M4 13a8 8 0 0 0 14.3 4L20 15M20 20v-5h-5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  trash: "M5 7h14M9.5 7V4h5v3M7 7l1 13h8l1-13",
  up: "M6 15l6-6 6 6",
  down: "M6 9l6 6 6-6",
  back: "M14.5 5l-7 7 7 7",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.6-5.7L12 7M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.6 5.7L12 17",
  shield: "M12 3l8 3v6c0 4.6-3.2 7.6-8 9-4.8-1.4-8-4.4-8-9V6zM8.5 12l2.5 2.5 4.5-4.5",
  tool: "M14.5 6.5a4 4 0 0 1 5-1.2L17 8l.6 2.4L20 11l2.2-2.4a4.5 4.5 0 0 1-6.1 5.3L8 21l-4-4 7.6-7.6a4.4 4.4 0 0 1 2.9-2.9z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent)" />
      <path
        d="M8 21V11l8 6 8-6v10"
        fill="none"
        stroke="var(--on-accent)"
        strokeWidth="2.6"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
