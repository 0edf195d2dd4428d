/**
 * A program of Node with the openai package's `OpenAIRealtimeWS`: asks for one response, prints every event as a line
 * of JSON, and leaves. What it is told in `GATEWAY` and `MODEL` comes from the test.
 */
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const client = new OpenAI({ baseURL: `${process.env.GATEWAY}/v1` });
const socket = new OpenAIRealtimeWS({ model: process.env.MODEL }, client);
const print = (line) => console.log(JSON.stringify(line));
socket.on("event", (event) => print(event));
socket.on("error", (error) => print({ type: "failed", message: error.message }));
socket.on("session.created", () => socket.send({ type: "response.create" }));
socket.on("response.done", () => socket.close());
socket.socket.on("close", (code, reason) => print({ type: "closed", code, reason: String(reason) }));
