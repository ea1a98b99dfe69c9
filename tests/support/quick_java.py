"""How the tests start a JVM."""

# Compiling well does not pay for jobs that are as short as these: it doubles the CPU time of a
# start. Verifying the byte code of Spark takes an eighth of it.
OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# For a JVM that another program starts.
ENVIRONMENT = {"JDK_JAVA_OPTIONS": OPTIONS}
