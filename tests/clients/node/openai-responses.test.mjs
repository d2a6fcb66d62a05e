// Responses through the openai package.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { ResponsesToolRunner } from "openai/helpers/responses-tool-runner";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0 });
const City = z.object({ city: z.string() });
const tools = [zodResponsesFunction({ name: "get_weather", parameters: City })];

test("a loop of call and result, streamed, the response kept here", async () => {
  const types = [];
  const stream = client.responses
    .stream({ model: "demo", input: "How is the weather?", tools })
    .on("event", (event) => types.push(event.type));
  const first = await stream.finalResponse();
  assert.equal(types[0], "response.created");
  assert.equal(types.at(-1), "response.completed");
  const [call] = first.output;
  assert.equal(call.type, "function_call");
  assert.deepEqual(call.parsed_arguments, { city: "Zürich" });
  const second = await client.responses.create({
    model: "demo",
    previous_response_id: first.id,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "17 degrees" }],
    tools,
  });
  assert.equal(second.output_text, "It is 17 degrees in Zürich.");
  const read = await client.responses.retrieve(second.id);
  assert.equal(read.output_text, second.output_text);
  await client.responses.delete(second.id);
});

test("the tool runner goes on with streamed parallel calls, some run before the stream ends", async () => {
  const asked = [];
  const execute = ({ city }) => {
    asked.push(city);
    return "17 degrees";
  };
  const [{ name, parameters, strict }] = tools;
  const tool = { type: "function", name, parameters, strict };
  const runner = new ResponsesToolRunner({ functions: [{ tool, execute, independent: true }] });
  const final = await runner.run(
    client,
    { model: "demo", input: "Compare two cities" },
    { stream: true, eager: true },
  );
  assert.deepEqual(asked.sort(), ["Bern", "Zürich"]);
  assert.equal(final.output_text, "It is 17 degrees in Zürich.");
});

test("an answer has the form of its schema", async () => {
  const response = await client.responses.parse({
    model: "demo",
    input: "Say it as JSON",
    text: { format: zodTextFormat(City, "answer") },
  });
  assert.deepEqual(response.output_parsed, { city: "Bern" });
});

test("reasoning is an item before the message, and its deltas are its text", async () => {
  let told = "";
  const stream = client.responses
    .stream({ model: "demo", input: "Ponder it" })
    .on("response.reasoning_text.delta", ({ delta }) => (told += delta));
  const { output, output_text } = await stream.finalResponse();
  assert.deepEqual(
    output.map((item) => item.type),
    ["reasoning", "message"],
  );
  assert.equal(output[0].content[0].text, "Bern is higher.");
  assert.equal(told, "Bern is higher.");
  assert.equal(output_text, "Bern is colder.");
});

test("a custom tool's input comes as it was written", async () => {
  const stream = client.responses.stream({
    model: "demo",
    input: "Run something",
    tools: [{ type: "custom", name: "run_python", description: "Runs it." }],
  });
  const [call] = (await stream.finalResponse()).output;
  assert.equal(call.type, "custom_tool_call");
  assert.equal(call.input, 'print("é")\n');
});

test("a limit is told", async () => {
  const types = [];
  const stream = client.responses
    .stream({ model: "demo", input: "Count", max_output_tokens: 3 })
    .on("event", (event) => types.push(event.type));
  const cut = await stream.finalResponse();
  assert.equal(types.at(-1), "response.incomplete");
  assert.equal(cut.incomplete_details.reason, "max_output_tokens");
});

test("errors have their class and their field", async () => {
  const bad = [
    [{ model: "nope" }, OpenAI.NotFoundError, "model"],
    [{ tools: [{ type: "web_search" }] }, OpenAI.BadRequestError, "tools[0].type"],
  ];
  for (const [change, kind, param] of bad) {
    const answer = client.responses.create({ model: "demo", input: "x", ...change });
    await assert.rejects(answer, (error) => error instanceof kind && error.param === param);
  }
});

test("who aborts is told so, and the next request is answered", async () => {
  const stream = client.responses.stream({ model: "demo", input: "Count" });
  stream.once("response.output_text.delta", () => stream.abort());
  await assert.rejects(stream.done(), OpenAI.APIUserAbortError);
  const next = await client.responses.create({ model: "demo", input: "Ponder it" });
  assert.equal(next.output_text, "Bern is colder.");
});
