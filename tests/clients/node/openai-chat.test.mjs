// Chat Completions through the openai package.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0 });
const City = z.object({ city: z.string() });
const ask = (content) => ({ model: "demo", messages: [{ role: "user", content }] });

function weather(asked) {
  const run = ({ city }) => {
    asked.push(city);
    return "17 degrees";
  };
  return zodFunction({ name: "get_weather", parameters: City, function: run });
}

test("the runner calls the function and sends its result back, streamed and not", async () => {
  for (const stream of [false, true]) {
    const asked = [];
    const runner = client.chat.completions.runTools({
      ...ask("How is the weather?"),
      tools: [weather(asked)],
      stream,
    });
    assert.equal(await runner.finalContent(), "It is 17 degrees in Zürich.");
    assert.deepEqual(asked, ["Zürich"]);
    assert.deepEqual(
      runner.messages.map((message) => message.role),
      ["user", "assistant", "tool", "assistant"],
    );
  }
});

test("the stream helper puts parallel calls together, and parses them", async () => {
  const stream = client.chat.completions.stream({
    ...ask("Compare two cities"),
    tools: [weather([])],
    stream_options: { include_usage: true },
  });
  const { choices, usage } = await stream.finalChatCompletion();
  const [{ finish_reason, message }] = choices;
  assert.equal(finish_reason, "tool_calls");
  assert.equal(message.content, null);
  const [first, second] = message.tool_calls;
  assert.deepEqual(first.function.parsed_arguments, { city: "Zürich" });
  assert.deepEqual(second.function.parsed_arguments, { city: "Bern" });
  assert.notEqual(first.id, second.id);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
});

test("two choices stream side by side", async () => {
  const stream = client.chat.completions.stream({ ...ask("How is the weather?"), tools: [weather([])], n: 2 });
  const { choices } = await stream.finalChatCompletion();
  assert.deepEqual(
    choices.map((choice) => [choice.index, choice.finish_reason, choice.message.tool_calls.length]),
    [[0, "tool_calls", 1], [1, "tool_calls", 1]],
  );
});

test("an answer has the form of its schema, beside tools too", async () => {
  for (const tools of [undefined, [weather([])]]) {
    const completion = await client.chat.completions.parse({
      ...ask("Say it as JSON"),
      response_format: zodResponseFormat(City, "answer"),
      ...(tools && { tools }),
    });
    assert.deepEqual(completion.choices[0].message.parsed, { city: "Bern" });
  }
});

test("reasoning comes apart from the text", async () => {
  let reasoning = "";
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...ask("Ponder it"), stream: true })) {
    reasoning += chunk.choices[0]?.delta.reasoning_content ?? "";
    text += chunk.choices[0]?.delta.content ?? "";
  }
  assert.equal(reasoning, "Bern is higher.");
  assert.equal(text, "Bern is colder.");
});

test("a limit is told as the helpers expect it", async () => {
  const cut = client.chat.completions.parse({
    ...ask("Say it as JSON"),
    response_format: zodResponseFormat(City, "answer"),
    max_completion_tokens: 2,
  });
  await assert.rejects(cut, OpenAI.LengthFinishReasonError);
});

test("errors have their class, their field and the request's id", async () => {
  const bad = [
    [{ model: "nope" }, OpenAI.NotFoundError, "model"],
    [{ temperature: "hot" }, OpenAI.BadRequestError, "temperature"],
    [{ tools: [], tool_choice: "required" }, OpenAI.BadRequestError, "tools"],
  ];
  for (const [change, kind, param] of bad) {
    for (const stream of [false, true]) {
      await assert.rejects(client.chat.completions.create({ ...ask("x"), ...change, stream }), (error) => {
        assert.ok(error instanceof kind);
        assert.equal(error.param, param);
        assert.ok(error.requestID);
        return true;
      });
    }
  }
});

test("who aborts is told so, and the next request is answered", async () => {
  const stream = client.chat.completions.stream(ask("Count"));
  stream.once("content", () => stream.abort());
  await assert.rejects(stream.done(), OpenAI.APIUserAbortError);
  const next = await client.chat.completions.create({ ...ask("Count"), max_completion_tokens: 3 });
  assert.equal(next.choices[0].finish_reason, "length");
});

test("models are listed", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ["demo"]);
});
