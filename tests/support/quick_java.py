"""How the tests start a JVM."""

# Optimized compilation does not pay for such short jobs: it doubles the CPU time of a start.
# Verifying Spark's byte code takes an eighth of it.
OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# For a JVM that another program starts.
ENVIRONMENT = {"JDK_JAVA_OPTIONS": OPTIONS}
