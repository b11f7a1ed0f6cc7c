"""Serve runs and exported files over HTTP: python examples/serve.py 8000 output/digits exported/digits.onnx.

It needs pip install fastapi uvicorn. A model is named by the last part of its path; send it the bytes of an image:

    curl --data-binary @cat.jpg http://127.0.0.1:8000/digits.onnx
"""

import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from paddlevit_dist import Predictor, UserError

LARGEST = 20 << 20  # bytes of an image


def make_app(sources):
    """Answer with the rows of predictions.jsonl; threads decode several images while the network computes."""
    models = {}
    for source in sources:
        name = Path(source).absolute().name
        if name in models:
            raise UserError(f"{source}: another model is named {name}, too: rename one of them")
        models[name] = Predictor(source)
    app = FastAPI()

    @app.get("/")
    def list_models():
        return {name: predict.class_names for name, predict in models.items()}

    @app.post("/{name}")
    async def answer(name: str, request: Request):
        if name not in models:
            raise HTTPException(404, f"no model {name}: there are {', '.join(models)}")
        content = b""
        async for part in request.stream():
            content += part
            if len(content) > LARGEST:
                raise HTTPException(413, f"the image has more than {LARGEST:,} bytes")
        try:
            return await run_in_threadpool(models[name], content)
        except UserError as error:  # not an image, or damaged
            raise HTTPException(422, str(error)) from error

    return app


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[2:]), port=int(sys.argv[1]))
