/** Of the models that chats of the past month went to, in dollars per million tokens: invented, so that costs can be seen. */
export const CHAT_PRICES = [
  { match: "demo", input: 0.4, output: 1.6 },
  { match: "demo-slow", input: 1.1, output: 4.4 },
] as const;
export const DEMO_PRICES = [
  ...CHAT_PRICES,
  { match: "demo-voice", input: 4, output: 16 },
  { match: "demo-embed", input: 0.02, output: 0 },
] as const;
