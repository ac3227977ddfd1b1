// The official JavaScript client asks agents. Prints what it heard as one line of JSON.
//
// node javascript.mjs BINDING URL KEY

import { GetTaskRequest, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task } from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";
import { randomUUID } from "node:crypto";

const [binding, base, key] = process.argv.slice(2);
const shown = { Authorization: `Bearer ${key}` };
const fetchImpl = (url, request = {}) => {
  const headers = new Headers(request.headers);
  headers.set("Authorization", shown.Authorization);
  return fetch(url, { ...request, headers });
};
const transports = {
  JSONRPC: () => new JsonRpcTransportFactory({ fetchImpl }),
  "HTTP+JSON": () => new RestTransportFactory({ fetchImpl }),
  GRPC: () => new GrpcTransportFactory(),
};
const factory = new ClientFactory({
  transports: [transports[binding]()],
  preferredTransports: [binding],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const client = (agent) => factory.createFromUrl(`${base}/agents/${agent}/.well-known/agent-card.json`, "");
const options = { serviceParameters: binding === "GRPC" ? { authorization: shown.Authorization } : {} };

const say = (parts, more = {}, configuration = undefined) =>
  SendMessageRequest.fromJSON({ message: { messageId: randomUUID(), role: "ROLE_USER", parts, ...more }, configuration });
const events = async (stream) => {
  const found = [];
  for await (const event of stream) {
    found.push(StreamResponse.toJSON(event));
  }
  return found;
};
const task = async (agent, id) => Task.toJSON(await agent.getTask(GetTaskRequest.fromJSON({ id }), options));
const name = async (asked) => {
  try {
    await asked;
  } catch (error) {
    return error.constructor.name;
  }
};

const heard = {};
const clock = await client("clock");
heard.slow = await events(clock.sendMessageStream(say([{ data: { count: 3, pause: 0.05 } }], { metadata: { skill: "slow" } }), options));
heard.done = await task(clock, heard.slow[0].task.id);
heard.refused = await events(clock.sendMessageStream(say([{ text: "refuse" }], { metadata: { skill: "judge" } }), options));

const oracle = await client("oracle");
const asked = await events(oracle.sendMessageStream(say([{ text: "advise me" }]), options));
const { id, contextId } = asked[0].task;
heard.question = await task(oracle, id);
heard.answer = await events(oracle.sendMessageStream(say([{ text: "blue" }], { taskId: id, contextId }), options));
heard.foreign = await name(task(clock, id));

// A task that is followed from elsewhere, and cancelled.
const endless = say([{ data: { count: 1_000_000, pause: 0.01 } }], { metadata: { skill: "slow" } }, { returnImmediately: true });
const begun = await clock.sendMessage(endless, options);
const following = clock.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: begun.id }), options);
// The first event says that the task is followed. Once it has ended, nobody can follow it. A later one comes from the agent's
// tool: if the task were cancelled before, the tool might never begin.
await following.next();
await following.next();
await clock.cancelTask({ tenant: "", id: begun.id, metadata: undefined }, options);
heard.cancelled = (await events(following)).at(-1) ?? null;
heard.again = await name(clock.cancelTask({ tenant: "", id: begun.id, metadata: undefined }, options));

console.log(JSON.stringify(heard));
process.exit(0);
