"""The examinations of `bottleneck doctor`: each looks at one thing and gives one finding."""
