/** Waits for this process's turn to write to a database file that others write to; calling the result ends the turn. */
export type WriteTurn = () => Promise<() => void>;
