// The official TypeScript client as a host. Prints what it heard as one line of JSON.
//
// node typescript.mjs MODE URL [KEY], or MODE COMMAND ARGUMENTS… for a server over standard input and output.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [mode, place, ...more] = process.argv.slice(2);
const LONG = { timeout: 120_000 };
const NEWS = "sealbus://channel/news";

const client = new Client({ name: "typescript", version: "1" }, { versionNegotiation: { mode } });
const transport = place.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(place), {
      requestInit: { headers: more.length ? { Authorization: `Bearer ${more[0]}` } : {} },
    })
  : new StdioClientTransport({ command: place, args: more, env: process.env });
await client.connect(transport, LONG);

const heard = { version: client.getNegotiatedProtocolVersion(), server: client.getServerVersion().name };

// The tools, once the gateway has heard of the agents'.
do {
  heard.tools = (await client.listTools(undefined, { ...LONG, cacheMode: "refresh" })).tools.map((tool) => tool.name);
} while (!heard.tools.includes("clock__slow"));

const call = (name, input, options) => client.callTool({ name, arguments: input }, { ...LONG, ...options });
const code = async (asked) => {
  try {
    await asked;
  } catch (error) {
    return error.code;
  }
};

heard.doubled = await call("clock__double", { input: 21 });
heard.refused = await call("clock__refuse", { input: "tea" });
heard.unknown = await code(call("clock__nothing", {}));
heard.counted = await call("clock__slow", { count: 3, pause: 0.05 });
heard.asked = await call("request_agent", { to: "secretary", content: "good day" });

// A call that is given up at its third notice: the agent notes that it was cancelled. This client drops notices that it reads together
// with a result, and here is none.
heard.progress = [];
const giveUp = new AbortController();
const onprogress = (notice) => heard.progress.push(notice) < 3 || giveUp.abort();
const given = call("clock__slow", { count: 1_000_000, pause: 0.01 }, { signal: giveUp.signal, onprogress });
heard.givenUp = await given.then(() => false, () => true);

// Events of a channel.
const updated = new Promise((resolve) => {
  client.setNotificationHandler("notifications/resources/updated", (notice) => resolve(notice.params.uri));
});
await call("subscribe", { channel: "/news" });
if (heard.version < "2026") {
  await client.subscribeResource({ uri: NEWS }, LONG);
} else {
  await client.listen({ resourceSubscriptions: [NEWS] }, LONG);
}
await call("publish", { channel: "/orders", content: "tea" });
heard.updated = await updated;
heard.news = JSON.parse((await client.readResource({ uri: NEWS }, LONG)).contents[0].text);
await call("unsubscribe", { channel: "/news" });

console.log(JSON.stringify(heard));
await client.close();
process.exit(0);
