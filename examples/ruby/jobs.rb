# Jobs with redis-rb.
#
#   ruby jobs.rb add QUEUE BODY...   adds a job for each body, and prints their ids
#   ruby jobs.rb work QUEUE          does the jobs, until SIGTERM and the end of the current job
#
# DISQUE_NODES="host:port host:port" names nodes of the cluster, DISQUE_PASSWORD is their password.

require "redis"
require "securerandom"

$stdout.sync = true

class Disque
  GIVE_UP = 30 # seconds without an answer from any node

  def initialize(nodes, password)
    @nodes = nodes
    @password = password
  end

  # Sends a command, and tries the next node if the connection breaks or the node cannot run it now.
  # So use it only for commands that may run twice.
  def command(*words)
    start = Time.now
    begin
      @redis ||= connect
      @redis.call(*words)
    rescue Redis::BaseConnectionError, Redis::CommandError => error
      refused = error.is_a?(Redis::CommandError) && error.message !~ /^(LEAVING|LOADING|NOREPL|NOUNIQ)/
      raise if refused || Time.now - start > GIVE_UP

      @redis.close
      @redis = nil
      @nodes.rotate!
      sleep 0.2 + 0.2 * rand
      retry
    end
  end

  private

  def connect
    host, port = @nodes.first.split(":")
    Redis.new(
      host: host, port: port.to_i, password: @password,
      connect_timeout: 5, read_timeout: 10, # longer than any command waits
      reconnect_attempts: 0 # `command` tries the next node
    )
  end
end

def add(disque, queue, bodies)
  bodies.each do |body|
    key = SecureRandom.uuid # sending this again returns the id of the same job
    puts disque.command("ADDJOB", queue, body, 5000, "UNIQUE", key, "FOR", 300)
  end
end

def work(disque, queue)
  stopping = false
  trap("TERM") { stopping = true }
  until stopping
    # A short wait, to notice SIGTERM soon.
    jobs = disque.command("GETJOB", "TIMEOUT", 1000, "WITHCOUNTERS", "FROM", queue)
    next unless jobs

    _, id, body, _, nacks, _, again = jobs.first
    puts "took #{body} (nacks #{nacks}, again #{again})"
    begin
      keep(disque, id) { handle(body, nacks) }
    rescue Failed => error
      disque.command("NACK", id, "DELAY", [2**nacks, 60].min, "REASON", error.message)
    else
      disque.command("ACKJOB", id)
      puts "done #{body}"
    end
  end
end

# Sends WORKING after every half of the job's retry time, so that nobody else gets it.
def keep(disque, id, &work)
  thread = Thread.new(&work)
  thread.report_on_exception = false # join raises its exception
  begin
    retry_time = disque.command("WORKING", id) # seconds; 0 if delivered at most once
  rescue Redis::CommandError => error
    warn "not ours any more: #{error.message}"
    retry_time = 0
  end until thread.join(retry_time.zero? ? nil : retry_time / 2.0)
end

class Failed < StandardError; end

# Does the work: "sleep 3" takes three seconds, "fail" fails the first time.
def handle(body, nacks)
  verb, seconds = body.split
  sleep seconds.to_f if verb == "sleep"
  raise Failed, "not today" if verb == "fail" && nacks.zero?
end

nodes = ENV.fetch("DISQUE_NODES", "127.0.0.1:7711").split
disque = Disque.new(nodes, ENV["DISQUE_PASSWORD"])
role, queue, *bodies = ARGV
begin
  role == "add" ? add(disque, queue, bodies) : work(disque, queue)
rescue Redis::BaseError => error
  abort "#{nodes.first}: #{error.message}"
end
