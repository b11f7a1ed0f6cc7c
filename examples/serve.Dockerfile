# examples/serve.py on top of the package's image. From the root of the repository:
#   docker build -f docker/Dockerfile -t paddlevit_dist .
#   docker build -f examples/serve.Dockerfile -t registry.example/serve examples
#   docker run --rm -p 8000:8000 -v "$PWD/exported:/models:ro" registry.example/serve /models/mine.onnx
# hadolint ignore=DL3006
FROM paddlevit_dist
COPY serve.py /opt/serve.py
EXPOSE 8000
ENTRYPOINT ["python", "/opt/serve.py", "0.0.0.0:8000"]
