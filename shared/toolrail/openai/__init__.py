"""The request side of the OpenAI API: what a body means, and the tag and prompt it asks for.

One code path for the server and for `toolrail check | tag | prompt`. Nothing here does I/O: bodies
and model cards come in, requests, policies and tags go out, and a request at fault is a
`CallerError` that names the field. Answers (objects, chunks, event streams) are the gateway's.
"""
