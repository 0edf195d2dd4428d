import type { z } from "zod";

export interface NotificationDefinition<Name extends string = string, Params extends z.ZodType = z.ZodType> {
  name: Name;
  summary: string;
  /** What it carries. Checked by the compiler where it is sent, not again at run time: one goes out for each token. */
  params: Params;
}

/** The one place where a notification exists; what is sent, documents and client types are derived from it. */
export const defineNotification = <const Name extends string, Params extends z.ZodType>(
  definition: NotificationDefinition<Name, Params>,
): NotificationDefinition<Name, Params> => definition;
